"""The checks of `runner doctor`. They are short, change nothing and leave nothing running."""
