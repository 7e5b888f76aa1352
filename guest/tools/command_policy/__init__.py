"""The operator's word on which shell commands may run."""
