"""A user's guests, for tests in other projects. Needs the extra `testing`.

with UserPair("alice") as pair:
    pair.call_tool("memory_save", {"content": "tea is at five"})
    print(pair.turn("what do you know about tea?").text)
"""

from runner.testing.pair import CalledTool, GuestContainer, Turn, UserPair

__all__ = ["CalledTool", "GuestContainer", "Turn", "UserPair"]
