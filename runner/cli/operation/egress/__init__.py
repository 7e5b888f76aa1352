"""`runner egress`: what may leave the guests, what has left, and changes of that."""
