"""What memory did in a turn, the one more chance, and the few saves by the runtime."""
