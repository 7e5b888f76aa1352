"""What a host has in a cluster instead: pods that others start, and a network to be tried."""
