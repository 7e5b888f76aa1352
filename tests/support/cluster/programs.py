"""Where the programs of a cluster are."""

from pathlib import Path
from typing import Final

PROGRAMS: Final = Path(__file__).parents[3] / ".venv/kubernetes"
"""The API server, the scheduler and the controllers, by tools/get_kubernetes.sh."""
