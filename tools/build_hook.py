"""What is done before the wheel or the source archive is packed: see pyproject.toml."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WebLibraries(BuildHookInterface):  # type: ignore[misc]
    """Brings the console's libraries, which git does not have. An editable installation is made
    by tools/setup.sh, which does that itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        if version != "editable":
            tool = Path(self.root, "tools", "web_libraries.py")
            subprocess.run([sys.executable, "-P", str(tool)], check=True)
