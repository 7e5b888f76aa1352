"""Fuzzing: targets that must bear any bytes, what drives them, and the corpus they start from."""
