"""Write the manifests and the chart."""

from .files import PLACE, write

write()
print(f"the manifests and the chart are in {PLACE}")
