"""Alice, whose agent runs on a machine with another account, begun as carelessly as can be: with a
umask of 0, after mallory has made what she could."""

import secrets
import sys
from dataclasses import dataclass

from tests.support.accounts.machine import ALICE, EVERYBODYS, MALLORY, Machine, NamesMade

RUNNER = (sys.executable, "-P", "-m", "runner.cli.app", "--insecure")
MARK = secrets.token_hex(8)
ENVIRONMENT = {
    "XDG_RUNTIME_DIR": str(ALICE.runtime),
    "OXYDRA_EMBEDDER__BACKEND": "hashing",
    "OXYDRA_AGENT__PROVIDER": "openai",
    "OXYDRA_AGENT__MODEL": "m",
    "OXYDRA_AGENT__BASE_URL": "http://127.0.0.1:9/v1",
    "OXYDRA_AGENT__API_KEY_ENV": "PROVIDER_KEY",
    "OXYDRA_MEMORY__ENCRYPTION__KEY_ENV": "MEMORY_KEY",
    "PROVIDER_KEY": f"sk-provider-{MARK}",
    "MEMORY_KEY": f"memory-key-{MARK}",
}
NOTE = f"alice likes the number {secrets.randbelow(10**12):012}"


PLANT = """
: > /tmp/caught; mkdir -m 777 /tmp/mine; chmod 666 /tmp/caught
directories="oxydra oxydra-$UID_OF_ALICE .oxydra .local .cache"
files="runtime-$UID_OF_ALICE runner.toml host.log control.token .alice.jsonl .alice.backup"
for place; do
  for name in $directories; do ln -s /tmp/mine "$place/$name"; done
  for name in $files; do ln -s /tmp/caught "$place/$name"; done
  mkfifo -m 666 "$place/memory.db" "$place/agent.sock" "$place/control.sock" "$place/host.lock"
done
"""
"""What another account does before: names for all places of everybody, which are its arguments."""


@dataclass(frozen=True)
class Home:
    """Alice's side: the machine, and the names that her commands made where everybody may."""

    machine: Machine
    names: set[tuple[str, str]]


def alice_runs(machine: Machine, *arguments: str, **environment: str) -> str:
    """What a command of alice's says; it must succeed."""
    told = {**ENVIRONMENT, **environment}
    done = machine.run(ALICE, *RUNNER, *arguments, environment=told, umask=0o000)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def begin(machine: Machine) -> Home:
    """Mallory makes what she can, then alice begins and does a little of everything."""
    planted = machine.run(
        MALLORY,
        *("/bin/sh", "-c", PLANT, "sh", *EVERYBODYS),
        environment={"UID_OF_ALICE": str(ALICE.uid)},
    )
    assert planted.returncode == 0, planted.stderr
    names = NamesMade([machine.outside(place) for place in EVERYBODYS])
    alice_runs(machine, "start", "--detach")
    alice_runs(machine, "memory", "save", NOTE)
    alice_runs(machine, "memory", "export", "/tmp/alice.jsonl")
    alice_runs(machine, "memory", "backup", "/tmp/alice.backup")
    seen = names.read()
    names.close()
    return Home(machine, seen)
