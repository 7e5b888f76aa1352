"""The gRPC door of the agent guest."""
