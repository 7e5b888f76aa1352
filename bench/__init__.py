"""Performance claims, measured: `make bench` prints both sides of each."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own log would go between the figures
