"""Whether the file of the user's memory has a proper place and is intact."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from runner.config.models import Config
from runner.doctor.database_probe import MAGIC, plain_file
from runner.doctor.finding import Finding, check, ok, problem, warning
from runner.host.runtime import Runtime, lock_holder
from runner.tiers.drivers import tier_of
from runner.workspace.database_file import resolve_db_path
from runner.workspace.workspace import Workspace

_NAME: Final = "database"
_TIMEOUT_S: Final = 120.0


@check(_NAME)
def database(config: Config, user_id: str, *, timeout: float = _TIMEOUT_S) -> str | Finding:
    """Whether the memory of `user_id` can be opened.

    Only looks while no host runs, and changes neither the file nor anything beside it.
    """
    workspace = Workspace.locate(config, user_id)
    runtime = Runtime.locate(config, user_id)
    setting = config.for_user(user_id).memory.db_path
    path = resolve_db_path(setting, workspace, mounted_only=tier_of(config).images)
    if not path.exists():
        return f"{path} is made at the first start"
    if lock_holder(runtime.lock) is not None:
        return f"{path} is in use by the running host; see runner status"
    encryption = config.for_user(user_id).memory.encryption
    if encryption.key_env or encryption.key_file:
        return _encrypted(path)
    try:
        state, details = _probe(path, timeout)
    except subprocess.TimeoutExpired:
        return warning(
            _NAME, f"{path} could not be checked within {timeout:g} s", f"ls -l {path.parent}"
        )
    if state == "damaged" and lock_holder(runtime.lock) is not None:
        state = "in use"  # a host has started in the meantime
    return _judged(path, state, details)


def _encrypted(path: Path) -> Finding:
    """Only the agent guest can read such a file; here only whether it is encrypted can be seen."""
    try:
        with plain_file(path) as file:
            plain = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        return _judged(path, "unreadable", error.strerror or str(error))
    if plain:
        return problem(
            _NAME, f"{path} is not encrypted, and a key is configured", "runner memory rekey"
        )
    return ok(_NAME, f"{path} is encrypted; the agent checks it when it starts")


def _judged(path: Path, state: str, details: str) -> Finding:
    fine = {"ok": "is whole", "in use": "is in use", "logged": f"was not closed: {details}"}
    if state in fine:
        return ok(_NAME, f"{path} {fine[state]}")
    what, fix = {
        "foreign": ("is not a database", f"restore it, or: mv {path} {path}.old"),
        "damaged": ("is damaged", f"restore it, or: mv {path} {path}.damaged"),
    }.get(state, ("cannot be read", f"ls -l {path}; make it readable"))
    return problem(_NAME, f"{path} {what} ({details})", fix)


def _probe(path: Path, seconds: float) -> tuple[str, str]:
    command = [sys.executable, "-P", "-m", "runner.doctor.database_probe", str(path)]
    done = subprocess.run(  # noqa: S603 - our own program
        command, capture_output=True, text=True, timeout=seconds, check=False
    )
    try:
        told = json.loads(done.stdout)
        return str(told["state"]), str(told["details"])
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return "unreadable", last
