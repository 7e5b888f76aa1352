"""What the guide has from the code is as in the code."""

from pathlib import Path

import guide_tables
import pytest
from wire.settings import ToolsSettings

PAGES = guide_tables.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_is_what_the_code_says(page: Path) -> None:
    assert page.read_text() == PAGES[page], "run: .venv/bin/python tools/guide_tables.py"


def test_a_setting_without_a_meaning_is_refused() -> None:
    page = guide_tables.SETTINGS + "| `disabled` | `[]` | a list | tools that are off |\n"
    with pytest.raises(SystemExit, match="add a row for `enabled`"):
        guide_tables.settings_of(page, ToolsSettings)
