"""The frozen schema of `wire.settings.UserSettings`, which envelopes carry.

`python tools/settings_snapshot.py` rewrites `tests/contract/settings.json`. Run it only for an
intended change; reviewers look at the diff.
"""

import json
from pathlib import Path
from typing import Any

from tool_snapshot import without_words
from wire.settings import UserSettings

SNAPSHOT = Path(__file__).resolve().parent.parent / "tests" / "contract" / "settings.json"


def current() -> dict[str, Any]:
    """Names, types, defaults and bounds of all settings; no wording."""
    schema: dict[str, Any] = without_words(UserSettings.model_json_schema())
    return schema


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(current(), indent=1) + "\n")
    print(f"the settings' schema is frozen in {SNAPSHOT}")
