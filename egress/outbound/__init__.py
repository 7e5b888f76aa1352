"""How the outside is reached: names, connections, clients, and the servers of the settings."""
