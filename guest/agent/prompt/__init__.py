"""What a turn's prompt is made of, and how it is kept within the window."""
