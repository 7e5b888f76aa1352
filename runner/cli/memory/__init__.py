"""`runner memory`: what an agent remembers."""
