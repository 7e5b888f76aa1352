"""Generated protobuf code, version 1. `make proto` writes it; never edit it."""
