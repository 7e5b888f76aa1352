"""The gateway of an agent guest, as the host and its commands reach it."""
