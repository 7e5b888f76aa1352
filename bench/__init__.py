"""Measures the claims about performance: `make bench` prints each figure beside its yardstick."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own log would go between the figures
