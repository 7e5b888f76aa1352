"""A user's memory on its way from one store to another: as lines of a file, or directly.

`docs/guide/moving.md` describes the lines. `exporting` writes them, `importing` stores
what they hold, and `move` does both at once between the local file and a server.
"""
