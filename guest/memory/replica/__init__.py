"""The replica of a memory on a server, and conversations that continue while the server is away."""
