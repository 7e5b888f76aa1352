"""The images that guests in containers run from: building, saving, loading."""
