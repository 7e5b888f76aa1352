"""What runs on the host while a user's agent does."""
