"""Traces and metrics of a host's agent, for OpenTelemetry and Prometheus."""
