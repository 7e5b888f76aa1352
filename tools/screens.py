"""The chat's screens: what a scripted conversation shows on terminals of several widths.

`python tools/screens.py` writes the snapshots that a test compares, and the picture in the README.
"""

import asyncio
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SNAPSHOTS: Final = ROOT / "tests" / "contract" / "screens"
PICTURE: Final = ROOT / "docs" / "pictures" / "chat.svg"
PICTURE_COLUMNS: Final = 80


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.support.commands import screens

    for columns in screens.WIDTHS:
        screen = asyncio.run(screens.shown(columns))
        (SNAPSHOTS / f"chat-{columns}.txt").write_text(screens.as_text(screen))
        if columns == PICTURE_COLUMNS:
            PICTURE.write_text(screens.as_picture(screen))


if __name__ == "__main__":
    main()
