"""Interception: TLS that ends at the egress guest, for the hosts that the operator names."""
