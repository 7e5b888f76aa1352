"""Text in, vectors out: client and server."""
