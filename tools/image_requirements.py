"""Write what each image is made of: exact versions, with the SHA-256 of each file that an index has
of them. Run it after a change of pyproject.toml or constraints.txt; it asks the package index.

    .venv/bin/python -m tools.image_requirements
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from wire.installation import MODEL_PACKAGE

from runner.images.naming import ImageRole
from runner.images.wheels import ANY_MODEL, EXTRAS

ROOT: Final = Path(__file__).resolve().parents[1]
CONSTRAINTS: Final = ROOT / "constraints.txt"
HEAD: Final = "# Made by tools/image_requirements.py from pyproject.toml and constraints.txt.\n"


def pinned() -> dict[str, str]:
    """The versions of constraints.txt by normal names."""
    lines = (line for line in CONSTRAINTS.read_text().splitlines() if "==" in line)
    pairs = (line.partition("==") for line in lines)
    return {normal(name): version for name, _, version in pairs}


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def compiled(*wanted: str, stdin: str = "") -> str:
    """What uv makes of it."""
    options = ("--constraint", str(CONSTRAINTS), "--generate-hashes", "--universal")
    quiet = ("--no-header", "--no-annotate", "--quiet", "--python-version", "3.11")
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "compile", *wanted, *options, *quiet]
    done = subprocess.run(uv, input=stdin, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    known = pinned()  # PyTorch and what it brings are not, and have no hash here
    blocks = re.split(r"^(?=\S)", done.stdout, flags=re.MULTILINE)
    return "".join(each for each in blocks if normal(each.partition("==")[0]) in known)


def requirements(extras: str) -> str:
    """The packages of some extras, and the default model's where an embedder is among them."""
    chosen = [word for extra in extras.split(",") for word in ("--extra", extra)]
    found = compiled("pyproject.toml", *chosen)
    if extras == EXTRAS[ImageRole.EMBEDDER]:
        found += compiled("-", "--no-deps", stdin=MODEL_PACKAGE)
    return HEAD + found


def main() -> None:
    """Write all files."""
    for role, extras in EXTRAS.items():
        if role is not ImageRole.SHELL_POD:
            (ROOT / "deploy/images" / role / "requirements.txt").write_text(requirements(extras))
    file = ROOT / "deploy/images" / ImageRole.EMBEDDER / "any-model.txt"
    file.write_text(requirements(f"{EXTRAS[ImageRole.EMBEDDER]},{ANY_MODEL}"))


if __name__ == "__main__":
    main()
