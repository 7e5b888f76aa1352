"""The manual page that the wheel brings."""

import man_page


def test_it_is_that_of_these_commands() -> None:
    assert man_page.PAGE.read_text() == man_page.page(), "python tools/man_page.py"
