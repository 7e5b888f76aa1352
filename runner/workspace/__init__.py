"""One user's directories, who sees them, and who owns them."""
