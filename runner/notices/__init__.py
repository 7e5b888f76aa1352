"""A person's notices, sent to services outside: ntfy, mail and chats."""
