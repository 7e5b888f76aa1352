"""Where the keys of models' providers are: in a variable, a file, a password manager or the
system's keyring. A typed key is stored in one of the last two, with the address that it is for."""

import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import platformdirs
from wire.disk import store
from wire.errors import Code
from wire.installation import adding
from wire.providers import PROVIDERS
from wire.settings import AgentSettings

from runner.config.loading import open_without_waiting
from runner.config.trust import own_accounts, workspace_around
from runner.errors import ConfigError, file_errors

KEYRING_SERVICE: Final = "oxydra"
_KEYRING: Final = "the system's keyring"
_FILE_MAX_BYTES: Final = 1024 * 1024
COMMAND_WITHIN_S: Final = 60.0
_SAID_CHARS: Final = 300
_BOUND: Final = re.compile(r"\nfor (https?://\S+)\Z")
"""What a file says after a key that is for one server alone."""


def read_provider_keys(
    agent: AgentSettings, environ: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """The keys by provider: those that are `given`, else those that `agent` says where to find. A
    provider without a key is left out."""
    keys = {each: given.get(each) or read_api_key(agent, environ, each) for each in PROVIDERS}
    return {provider: key for provider, key in keys.items() if key}


def read_api_key(
    agent: AgentSettings, environ: Mapping[str, str], provider: str | None = None
) -> str:
    """The key of `provider`, by default of the configured one; empty if no setting names one.

    Raises `ConfigError` if it is not where the setting says, or belongs to another address.
    """
    provider = provider or agent.provider
    match setting := agent.key_setting(provider):
        case "api_key_file":
            path = agent.api_key_file or Path()
            return read_key_file(path, f"agent.{setting}", agent.origin(provider))
        case "api_key_command":
            return _printed(agent.api_key_command)
        case "api_key_keyring":
            return read_keyring(provider, agent.origin(provider))
    purpose = f"agent.{setting} names it as the key of provider {provider!r}"
    return read_variable(agent.key_env(provider), environ, purpose, _KEPT)


def key_source(agent: AgentSettings, provider: str = "") -> str:
    """Where the key of `provider` comes from, in words; empty if no setting says so."""
    provider = provider or agent.provider
    match agent.key_setting(provider):
        case "":
            return ""
        case "api_key_file":
            return f"the file {agent.api_key_file}"
        case "api_key_command":
            return f"the command {agent.api_key_command[0]}"
        case "api_key_keyring":
            return _KEYRING
    return f"the environment variable {agent.key_env(provider)}"


def store_key(provider: str, base_url: str, key: str, user_id: str = "") -> dict[str, Any]:
    """Store a typed key of `provider` for one address; it survives the host and the machine's end.

    It goes to the system's keyring where one answers, else to a file of this account, which nobody
    else can read. Without a `user_id` the general settings name it. Returns the setting of
    `[agent]` that finds it, to be put in the place of all `KEY_SETTINGS`. Raises `ConfigError` if
    what was typed cannot be a key, or cannot be stored.
    """
    key = usable_key(key.strip(), "what was typed", "type the key alone, on one line")
    agent = AgentSettings.model_construct(provider=provider, base_url=base_url)
    origin = agent.origin(provider)
    if not user_id and _put_into_keyring(provider, origin, key):
        return {"api_key_keyring": True}
    name = "@".join(filter(None, (user_id, provider, origin.partition("://")[2])))
    path = _stored_keys() / name.replace("/", "_")
    write_private(path, f"{key}\nfor {origin}\n", what="the key file ")
    return {"api_key_file": str(path)}


def stored_file(agent: AgentSettings) -> Path | None:
    """The file with the key of these settings, if `store_key` has written it."""
    path = agent.api_key_file
    return path if path is not None and path.parent == _stored_keys() else None


def _stored_keys() -> Path:
    return platformdirs.user_config_path("oxydra") / "keys"


def variable_file(name: str) -> Path:
    """The file with the key that stands for a variable of the runner's where that is not set."""
    return _stored_keys() / "variables" / name


def store_variable(name: str, value: str) -> None:
    """Write a key into that file, which nobody else can read. Raises `ConfigError`."""
    key = usable_key(value.strip(), f"what is given for {name}", "give it on one line")
    write_private(variable_file(name), f"{key}\n")


def write_private(path: Path, content: str, *, what: str = "") -> None:
    """Write a file of this account, in a directory that is made. Raises `ConfigError`."""
    with file_errors(f"cannot write {what}{path}", f"ls -ld {path.parent}", kind=ConfigError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        store(path, content)


def read_keyring(provider: str, origin: str) -> str:
    """The key that the system's keyring has for `provider` at one server. Raises `ConfigError`."""
    name = _entry(provider, origin)
    fix = f"keyring set {KEYRING_SERVICE} {name}"
    with _opened_keyring(fix) as keyring:
        found = keyring.get_password(KEYRING_SERVICE, name)
    if not found:
        raise ConfigError(
            Code.NOT_FOUND,
            f"the system's keyring has no key for {provider} at {origin}",
            details=f"looked for: service {KEYRING_SERVICE}, user name {name}",
            resolution=f"runner credentials set; or {fix}",
        )
    return usable_key(found.strip(), "the keyring's entry", f"{fix}, with the key alone")


def _put_into_keyring(provider: str, origin: str, key: str) -> bool:
    """Whether the system's keyring has stored a key, and gives it back."""
    name = _entry(provider, origin)
    with suppress(ConfigError), _opened_keyring() as keyring:
        if keyring.get_keyring().priority < 1:  # keeps nothing, or keeps it in the open
            return False
        keyring.set_password(KEYRING_SERVICE, name, key)
        return bool(keyring.get_password(KEYRING_SERVICE, name) == key)
    return False


@contextmanager
def _opened_keyring(fix: str = "") -> Iterator[Any]:
    """The package keyring, to be used inside. Raises `ConfigError`; `fix` is what follows once it
    is installed."""
    try:
        import keyring.errors
    except ImportError:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "the package keyring is not installed",
            details="it opens the system's keyring",
            resolution=f"{adding('keyring')}; then: {fix}",
        ) from None
    try:
        yield keyring
    except keyring.errors.KeyringError as error:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "the system's keyring cannot be opened",
            details=str(error),
            resolution="unlock it; or keep the key in a file, and set agent.api_key_file",
        ) from None


def _entry(provider: str, origin: str) -> str:
    """The name of a key's entry. It has the address, so that another one does not find the key."""
    return f"{provider}@{origin}"


def _printed(command: tuple[str, ...]) -> str:
    """The first line of what a command prints. Raises `ConfigError`."""
    what = f"the command {command[0]}, which agent.api_key_command names,"
    fix = "run it in this shell to see what it asks; then correct agent.api_key_command"
    try:
        with _pipe() as (out, into_out), _pipe() as (err, into_err):
            done = subprocess.run(  # noqa: S603 - the operator's own words, no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=into_out,
                stderr=into_err,
                timeout=COMMAND_WITHIN_S,
                check=False,
            )
            printed, said = _held(out), _held(err)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or f"no answer for {COMMAND_WITHIN_S:g} seconds"
        failed = f"{what} cannot be run" if isinstance(error, OSError) else f"{what} takes too long"
        raise ConfigError(Code.FAILED_PRECONDITION, failed, details=why, resolution=fix) from None
    words = said.decode(errors="replace").strip()[-_SAID_CHARS:]
    if done.returncode:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"{what} ended with status {done.returncode}",
            details=words or "it printed no reason",
            resolution=fix,
        )
    if not (lines := printed.decode("ascii", "replace").strip().splitlines()):
        raise ConfigError(
            Code.FAILED_PRECONDITION, f"{what} printed no key", details=words, resolution=fix
        )
    return usable_key(lines[0].strip(), f"what {command[0]} printed", fix)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """For what a command prints, which may have no end: once it is full, the command waits. It can
    open it by name, too, as /dev/stdout."""
    ends = os.pipe()
    try:
        os.set_blocking(ends[0], False)
        yield ends
    finally:
        for end in ends:
            os.close(end)


def _held(pipe: int) -> bytes:
    """What is in a pipe, whose other end a process in the background may hold."""
    with suppress(BlockingIOError):
        return os.read(pipe, _FILE_MAX_BYTES)
    return b""


_KEPT: Final = "; or store the key, so that it survives a restart: runner credentials set"


def read_variable(name: str, environ: Mapping[str, str], purpose: str, otherwise: str = "") -> str:
    """The secret in environment variable `name`, else in its file; empty if no name is given.

    Raises `ConfigError` that names the variable if it is missing or its value cannot be a key.
    """
    if not name:
        return ""
    if not environ.get(name) and (file := variable_file(name)).exists():
        return read_key_file(file, purpose)
    if not (value := environ.get(name, "").strip()):
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"the environment variable {name} is not set",
            details=purpose,
            resolution=f"export {name}=…, then start again{otherwise}",
        )
    return usable_key(value, f"the environment variable {name}", f"set {name} to the key alone")


def read_key_file(path: Path, named_by: str, origin: str = "") -> str:
    """The key that a file holds. Raises `ConfigError`, also if other accounts can read it.

    With `origin`, a second line may bind the key to one server, as `store_key` writes it; the key
    is refused for another one.
    """
    with opened(named_by, path) as file:
        found = os.fstat(file.fileno())
        text = file.read(_FILE_MAX_BYTES).decode("ascii", "replace").strip()
    mode, is_own = stat.S_IMODE(found.st_mode), found.st_uid in own_accounts(os.environ)
    if mode & 0o077 or not is_own:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"others can read the key file {path}",
            details=f"its mode is {mode:04o}, and its owner the account with uid {found.st_uid}",
            resolution=("" if is_own else f"chown {os.geteuid()} {path}; ")
            + f"chmod 600 {path}; if somebody may have read the key, change it",
        )
    if origin and (around := workspace_around(path)):
        raise ConfigError(
            Code.PERMISSION_DENIED,
            f"the key file {path} is not used",
            details=f"it lies below {around}, where tools of an agent can read it",
            resolution=f"move it to another directory and correct {named_by}; change the key",
        )
    if origin and (bound := _BOUND.search(text)):
        if bound[1] != origin:
            raise ConfigError(
                Code.FAILED_PRECONDITION,
                f"the key in {path} was given for {bound[1]}, and is not sent to {origin}",
                details="a key belongs to one address",
                resolution="runner credentials set, with the key for this address; or correct "
                "agent.base_url",
            )
        text = text[: bound.start()].strip()
    if not text:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"the key file {path} is empty",
            details=f"{named_by} names it",
            resolution=f"write the key alone into {path}",
        )
    return usable_key(text, f"the key file {path}", f"write the key alone into {path}")


def usable_key(value: str, where: str, fix: str) -> str:
    """`value`, which was found `where`. Raises `ConfigError` with `fix` if it cannot be a key."""
    if value and value.isascii() and value.isprintable():
        return value
    raise ConfigError(
        Code.INVALID_ARGUMENT,
        f"{where} holds something that is not a key",
        details="a key is one line of printable ASCII characters; the value is not shown",
        resolution=fix,
    )


@contextmanager
def opened(setting: str, path: Path) -> Iterator[BinaryIO]:
    """The plain file that a setting names. Raises `ConfigError` for an `OSError`, and for anything
    else, which may keep its reader waiting or never end."""
    with (
        file_errors(
            f"cannot read {path}",
            f"ls -l {path}; it must be a file that this user can read",
            because=f"{setting} names it: ",
            kind=ConfigError,
        ),
        open(path, "rb", opener=open_without_waiting) as file,
    ):
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is not a plain file")
        yield file
