"""The models that answer: configured providers, and the built-in offline one."""
