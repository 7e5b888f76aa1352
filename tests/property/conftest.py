"""`pytest --hypothesis-profile=deep tests/property/test_memory_property.py` tries far more."""

from hypothesis import settings

settings.register_profile("deep", max_examples=5000)
