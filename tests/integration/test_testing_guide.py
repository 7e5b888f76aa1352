"""The example of the guide to `runner.testing` works as it stands there."""

from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "testing.md"


@pytest.mark.docker
def test_the_example_of_the_guide() -> None:
    (example,) = [block.split("```")[0] for block in GUIDE.read_text().split("```python\n")[1:]]
    defined: dict[str, Any] = {}
    exec(compile(example, str(GUIDE), "exec"), defined)
    defined["test_the_agent_remembers_and_the_shell_cannot_look"]()
