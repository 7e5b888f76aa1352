"""A memory on a server: the copy of it that is searched here, and talks while it is away."""
