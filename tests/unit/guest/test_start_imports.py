"""What the agent guest imports at its start."""

import subprocess
import sys


def test_nothing_of_mcp_is_imported_without_a_server() -> None:
    program = (
        "import sys, guest.app, guest.composition, guest.gateway.service\n"
        "print([name for name in ('mcp', 'mcp_types', 'jsonschema') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
