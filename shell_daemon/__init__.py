"""The shell guest: it acts, and knows nothing."""
