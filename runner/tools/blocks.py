"""The block of JSON that READMEs of MCP servers print for other programs, as our settings. A server
runs in a guest of its own, and a value that may be a key becomes the name of a variable."""

import re
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, Final

from wire.errors import Code
from wire.text import parsed_json, visible

from runner.errors import ConfigError
from runner.tools.drafts import Draft

BLOCK_MAX_CHARS: Final = 256 * 1024
_URLS: Final = ("url", "serverUrl", "httpUrl")
_OURS: Final = ("allow", "shared")
_KNOWN: Final = {*_URLS, *_OURS, "command", "args", "env", "headers", "type", "transport", "name"}
_SECRET: Final = re.compile(r"(?i)key|token|secret|passw|credential|auth|(^|_)pat(_|$)")
_PASSWORD: Final = re.compile(r"://[^/\s@]*:[^/\s@]+@")
_FILLED_IN: Final = re.compile(r"\$\{[^{}]*\}")
_BLANK: Final = re.compile(r"(?is)\s*|<.*>|.*(\byour|xxx|\.\.\.|…).*")
_PACKAGES: Final = {"npx": "npm", "uvx": "pypi", "uv": "pypi"}
_INSTALLS_S: Final = 180


def read_block(text: str) -> list[Draft]:
    """The servers of a block: `mcpServers` (Claude, Cursor), `servers` (VS Code), or one with its
    `name`. Ours are `allow`, rules for what it may reach, and `shared`, "ro" or "rw".

    Raises `ConfigError` for what cannot run here, with the reason.
    """
    why = "it is not JSON"
    try:
        found = parsed_json(text[:BLOCK_MAX_CHARS])
        why = "it is not {NAME: {command or url, …}}, in mcpServers or not"
        for table in ("mcp", "mcpServers", "servers"):
            found = found.get(table, found)
        if {"command", *_URLS} & found.keys():
            found = {found["name"]: found}
        if drafts := [_draft(name, dict(server)) for name, server in found.items()]:
            return drafts
        why = "it has no server"
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        why += f": {visible(str(error))}" if isinstance(error, ValueError) else ""
    raise _refused("this is no block of MCP servers", why)


def _draft(given: str, server: dict[str, Any]) -> Draft:
    name = re.sub(r"[^a-z0-9]+", "-", given.lower()).strip("-")[:24]
    if server.get("type", server.get("transport")) == "sse":
        raise _refused(f"{name} speaks SSE, which MCP has replaced by streamable HTTP")
    keys: dict[str, tuple[str, str]] = {}
    notes = [f"not used: {visible(each)}" for each in sorted(server.keys() - _KNOWN)]
    url = next((str(server[each]) for each in _URLS if server.get(each)), "")
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for key, value in (server.get("headers" if url else "env") or {}).items():
        text = str(value)
        blank = _FILLED_IN.search(text) or _BLANK.fullmatch(text)
        if url or blank or _SECRET.search(key) or _PASSWORD.search(text):
            keys[key.upper()] = (f"its value, as in {visible(text)!r}", "") if blank else ("", text)
            secret[key] = f"${{{key.upper()}}}"  # in small letters it would be no secret
        else:
            plain[key] = text
    if url:
        made: dict[str, Any] = {"url": url, "headers_env": secret}
    else:
        words = [str(server["command"]), *map(str, server.get("args") or ())]
        made = _program(name, words, notes) | {"env": plain, "secret_env": secret}
        made |= {"shared": server["shared"]} if "shared" in server else {}
        if allow := server.get("allow"):
            rules = [allow] if isinstance(allow, str) else list(allow)
            made["egress"] = made.get("egress", {}) | {"allow": rules}
    used = {key: value for key, value in made.items() if value}
    return Draft(name, {"mcp": {"servers": {name: used}}}, keys, tuple(notes))


def _program(name: str, words: list[str], notes: list[str]) -> dict[str, Any]:
    """The settings of a program of these words. Raises `ConfigError` for one that cannot run."""
    if [each.lower() for each in words[:2]] == ["cmd", "/c"]:  # as Windows wants it
        words = words[2:]
    command, *args = words
    program = PurePosixPath(command).name
    if program in ("docker", "podman"):
        raise _refused(f"{name} starts a container, and no guest may, which would not be confined")
    given = [*pairwise(args), *(tuple(each.split("=", 1)) for each in args if "=" in each)]
    hides = any(f.startswith("-") and _SECRET.search(f) and v[:1] != "-" for f, v in given)
    if hides or any(_PASSWORD.search(each) or _FILLED_IN.search(each) for each in words):
        raise _refused(f"an argument of {name} holds a key, or what only an editor fills in")
    if program == "npx" and not {"-y", "--yes"} & {*args}:
        args = ["-y", *args]
    made: dict[str, Any] = {"command": command, "args": args, "isolated": True}
    if any("/shared" in each for each in args):
        made["shared"] = "rw"
    if source := _PACKAGES.get(program):
        made |= {"start_timeout_s": _INSTALLS_S, "egress": {"presets": [source]}}
        if not any(re.search(r".(@|==)\d", each) for each in args):
            notes.append("names no version: it may be another program at each start")
    return made


def _refused(brief: str, details: str = "") -> ConfigError:
    return ConfigError(
        Code.INVALID_ARGUMENT,
        brief,
        details=details,
        resolution="look in its README for npx, uvx or an address of streamable HTTP, with keys in "
        "env or headers; or write [mcp.servers.NAME] yourself: runner config edit",
    )
