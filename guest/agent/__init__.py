"""The turn loop and the models behind it."""
