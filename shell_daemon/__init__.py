"""The shell guest: it runs commands and knows nothing of the agent's memory."""
