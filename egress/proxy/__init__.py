"""The listeners: Unix sockets with mutual TLS, one for each guest that may want to go outside."""
