"""What the agent guest imports at its start, and what only when it is ready."""

import json
import subprocess
import sys
from pathlib import Path


def test_nothing_of_mcp_is_imported_without_a_server() -> None:
    program = (
        "import sys, guest.app, guest.composition, guest.gateway.service\n"
        "print([name for name in ('mcp', 'mcp_types', 'jsonschema') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_memory_is_served_before_the_model_library_is_there(tmp_path: Path) -> None:
    """Two turns at once are the first to ask for the library: both wait, and nothing else does."""
    program = [sys.executable, "-m", "tests.support.guests.composed", str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["model"] == "offline"
    assert "Fram" in told["found"]
    assert told["turns before"] == 0
    assert told["imported before"] == []
    assert told["imported after"] == ["pydantic_ai", "genai_prices"]
    assert told["turns"] == ["completed", "completed"]
    assert told["beats"] > 1
