"""The chat's screens are what was frozen, and the picture of them is of today."""

import pytest
import screens as screens_tool

from tests.support.commands import screens

AGAIN = "if this change was decided: .venv/bin/python tools/screens.py"


@pytest.mark.parametrize("columns", screens.WIDTHS)
async def test_the_chat_on_a_terminal(columns: int) -> None:
    screen = await screens.shown(columns)
    shown = screens.as_text(screen)
    assert shown == (screens_tool.SNAPSHOTS / f"chat-{columns}.txt").read_text(), AGAIN
    assert max(map(len, shown.splitlines())) <= columns
    if columns == screens_tool.PICTURE_COLUMNS:
        assert screens.as_picture(screen) == screens_tool.PICTURE.read_text(), AGAIN
