"""Who is let in: by links, tokens, sessions of browsers, and what a trusted proxy says."""
