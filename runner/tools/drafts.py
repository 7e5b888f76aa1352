"""What a preset or a pasted block would set, what its server may then reach, and whose keys it has;
how it gets into the configuration file and out of it."""

import hashlib
import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from wire.egress.loopback import is_loopback
from wire.egress.rules import PRESETS
from wire.errors import Code
from wire.settings import Key, McpServerSettings, UserSettings, dotted
from wire.text import visible_name

from runner.config.loading import LoadedSettings, leaves
from runner.config.trust import check_place
from runner.config.user_id import DEFAULT_USER_ID
from runner.errors import ConfigError, file_errors
from runner.workspace.keys import store_variable, variable_file

_OURS: Final = Path(__file__).parents[1] / "presets"
Change = Callable[..., LoadedSettings]
"""Changes the configuration file, if that is accepted; with `write=False` only finds that out."""
Ask = Callable[[str, str], str]
"""Asks a person for a key of that name, with a question."""


class Draft(NamedTuple):
    """Settings, as in the configuration file, in which `${NAME}` stands for one of `keys`: a
    question with the answer, if there is one. A name in small letters is no secret."""

    name: str
    settings: dict[str, Any]
    keys: Mapping[str, tuple[str, str]] = {}
    notes: tuple[str, ...] = ()

    def filled(self, user_id: str, ask: Ask) -> dict[Key, object]:
        """The settings to change, with the answers that are no secrets: variables, or asked for."""
        text = json.dumps(self.settings)
        for name, (question, _) in self.keys.items():
            plain = name.islower() and (os.environ.get(name) or ask(name, question))
            word, place = (plain or _variable(user_id, self.name, name)).strip(), f"${{{name}}}"
            if f"://{place}" in text:  # perhaps an address was given for the host
                word = word.removeprefix("https://").rstrip("/")
            text = text.replace(place, json.dumps(word)[1:-1])
        return _changes(json.loads(text), user_id)


def preset(given: str) -> Draft:
    """A preset by its name, or by the path of its file: `about`, `settings`, and if wanted `keys`
    (questions by their names), `why`, `needs` and `never`. Raises `ConfigError`."""
    path = Path(given).expanduser() if Path(given).suffix else _OURS / f"{given}.toml"
    check_place(path, ())
    block = given == "-" or (not given.endswith(".toml") and Path(given).is_file())
    fix = f"runner tools add --json {shlex.quote(given) if block else 'FILE'}"
    fix = fix if block else f"runner tools list --available; or: {fix}"
    known = ", ".join(each.stem for each in sorted(_OURS.glob("*.toml")))
    with file_errors(f"{given} is no preset; there are {known}", fix, kind=ConfigError):
        text = path.read_text(encoding="utf-8", errors="replace")
    try:
        found = tomllib.loads(text)
        keys = {name: (str(question), "") for name, question in found.get("keys", {}).items()}
        rest = (f"{each}: {found[each]}" for each in ("why", "needs", "never") if each in found)
        return Draft(path.stem, found["settings"], keys, (found["about"], *rest))
    except (ValueError, KeyError, AttributeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(
            Code.INVALID_ARGUMENT, f"{path} is no preset", details=why, resolution=fix
        ) from None


def presets() -> Iterator[Draft]:
    """The presets that come with the runner."""
    return (preset(path.stem) for path in sorted(_OURS.glob("*.toml")))


def told(drafts: Sequence[Draft], user_id: str, ask: Ask, change: Change) -> list[str]:
    """What there is to know before these are added. Raises `WireError` for what is not accepted."""
    lines = []
    whose = user_id or DEFAULT_USER_ID
    before = change({}, write=False).config.for_user(whose).mcp.servers
    for draft in drafts:
        wanted = draft.filled(user_id, ask)
        servers = change(wanted, write=False).config.for_user(whose).mcp.servers
        held = (n for n, key in draft.keys.items() if os.environ.get(n) and not key[1])
        notes = (*draft.notes, *(f"takes what the variable {each} holds now" for each in held))
        lines += [f"{draft.name}: {note}" for note in notes]
        for key, value in wanted.items():
            is_server = key[-2:-1] == ("servers",)
            said = [f"sets {dotted(key)} = {json.dumps(value)}"]
            said = [*facts(servers[key[-1]])] if is_server else said
            if is_server and (old := before.get(key[-1])):
                was = f"takes the place of what is there: {'; '.join(facts(old))}"
                same = "is there already, with these settings"
                said.insert(0, same if old == servers[key[-1]] else was)
            lines += [f"{key[-1] if is_server else draft.name}: {each}" for each in said]
    return [visible_name(each) for each in lines]


def add(drafts: Sequence[Draft], user_id: str, ask: Ask, change: Change) -> LoadedSettings:
    """Store the keys and write the settings, in the place of what has their names. Returns all.
    Raises `WireError`; then no setting is changed."""
    changes: dict[Key, object] = {}
    keys: dict[str, str] = {}
    before = change({}, write=False).config
    for draft in drafts:
        wanted = draft.filled(user_id, ask)
        changes |= wanted
        same = change(wanted, write=False).config == before  # else a stored key goes elsewhere
        for name, (question, given) in draft.keys.items():
            file = variable_file(_variable(user_id, draft.name, name))
            value = given or os.environ.get(name, "")
            if not name.islower() and (value or not (same and file.exists())):
                keys[file.name] = value or ask(name, question).strip()
    change(changes, write=False)
    for variable, value in keys.items():
        store_variable(variable, value)
    return change(changes, write=True)


def added(config: UserSettings) -> Iterator[Draft]:
    """The presets without a server whose settings hold."""
    holds = dict(leaves(config.model_dump()))
    for each in presets():
        wanted = _changes(each.settings, "").items()
        like = [(str(holds.get(key)), re.sub(r"\$\{\w+\}", "?*", str(v))) for key, v in wanted]
        if like and all(fnmatchcase(*pair) for pair in like):
            yield each


def remove(name: str, user_id: str, loaded: LoadedSettings, change: Change) -> list[str]:
    """Take out a server, or what a preset has set, with the keys that were stored for it. What
    other presets set, too, stays: returns them. Raises `WireError`."""
    own = loaded.config.for_user(user_id)
    server, there = own.mcp.servers.get(name), {each.name: each.settings for each in added(own)}
    is_known = bool(server) or name.endswith(".toml") or (_OURS / f"{name}.toml").is_file()
    settings = {"mcp": {"servers": {name: {}}}} if server or not is_known else preset(name).settings
    keys = _changes(settings, user_id).keys()
    others = {each: _changes(there[each], user_id).keys() & keys for each in there if each != name}
    kept = [each for each, shared in others.items() if shared]
    changes = dict.fromkeys(keys - set().union(*others.values()))
    if change(changes, write=False).sources == change({}, write=False).sources:
        brief, why, fix = f"{name} is not set", "", "runner tools list"
        if kept and not changes:
            brief, why = f"{name} stays", f"{kept[-1]} sets the same"
            fix = f"runner tools remove {kept[-1]}"
        elif server or name in there:
            why = "for this user: what is set for all, or by a variable, stays"
            fix = f"runner --user {DEFAULT_USER_ID} tools remove {name}"
        raise ConfigError(Code.NOT_FOUND, brief, details=why, resolution=fix)
    change(changes, write=True)
    remain = [keys_of(each).values() for each in own.mcp.servers.values() if each is not server]
    for variable in {*keys_of(server).values()}.difference(*remain) if server else ():
        if "_OF_" in variable and variable.endswith(_mark(user_id)):  # as `add` stores them
            variable_file(variable).unlink(missing_ok=True)
    return kept


def _changes(settings: Mapping[str, Any], user_id: str) -> dict[Key, object]:
    """The settings to change: a server as a whole table, all else one by one."""
    servers = ("mcp", "servers")
    found: dict[Key, object] = {key: each for key, each in leaves(settings) if key[:2] != servers}
    found |= {(*servers, n): t for n, t in settings.get("mcp", {}).get("servers", {}).items()}
    own = () if user_id in ("", DEFAULT_USER_ID) else ("users", user_id)
    return {(*own, *key): value for key, value in found.items()}


def forget(user_id: str) -> None:
    """Delete the keys that were stored for a user alone."""
    for path in variable_file("").glob(f"*_{_mark(user_id)}"):
        path.unlink(missing_ok=True)


def _mark(user_id: str) -> str:
    """What the variables of a user's own keys end with."""
    general = user_id in ("", DEFAULT_USER_ID)
    return "" if general else hashlib.sha256(user_id.encode()).hexdigest()[:8].upper()


def _variable(user_id: str, server: str, name: str) -> str:
    """The variable of the runner's under which a key is stored: another one for each user."""
    return re.sub("[^A-Za-z0-9_]", "_", f"{name}_of_{server}_{_mark(user_id)}").upper().rstrip("_")


def keys_of(server: McpServerSettings) -> dict[str, str]:
    """The variables of the runner's that hold its keys, by what the server knows them as."""
    own = {each.variable or each.file: each.env for each in server.credentials.values()}
    return {**server.secret_env, **server.headers_env, **own}


def facts(server: McpServerSettings) -> Iterator[str]:
    """What a server runs, may reach, sees, has and gives."""
    yield f"runs {' '.join((server.command, *server.args)).strip() or 'elsewhere'}"
    if server.env:
        yield f"with {', '.join(f'{name}={value}' for name, value in server.env.items())}"
    way = () if server.has_guest else (server.url or "what commands may reach",)
    rules = (f"{name} ({', '.join(PRESETS[name])})" for name in server.egress.presets)
    keyed = (f"{', '.join(each.hosts)} with {each.env}" for each in server.credentials.values())
    yield f"may reach {'; '.join((*way, *rules, *server.egress.allow, *keyed)) or 'nothing'}"
    if server.command:
        yield f"sees of /shared: {server.shared if server.has_guest else 'all, as commands do'}"
    keys = ", ".join(f"{e} ({v})" for e, v in keys_of(server).items()) or "none"
    far = server.url[:5] == "http:" and not is_loopback(urlsplit(server.url).hostname or "")
    yield f"has keys: {keys}{', which travel unencrypted' if far and server.headers_env else ''}"
    approval = f", approval {server.approval}" if server.approval else ""
    yield f"gives tools: {', '.join(server.tools) or 'all'}, {server.safety}{approval}"
