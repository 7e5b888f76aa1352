"""One user's host: everything that runs while this user's agent does."""
