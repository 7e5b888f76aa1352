"""The container tier and micro_vm: hardened containers of a local engine."""
