"""A user's memory on its way from one store to another: as lines of a file, or directly."""
