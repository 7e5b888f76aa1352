"""The doors: Unix sockets with mutual TLS, one for each guest that may want something outside."""
