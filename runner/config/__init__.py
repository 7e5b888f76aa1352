"""Settings of the runner: what they are, where they come from, what is wrong with them."""
