"""The gateway: the gRPC service of the agent guest."""
