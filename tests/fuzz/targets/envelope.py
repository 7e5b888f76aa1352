"""The envelope on a guest's standard input: its framing, and what an agent's says.

Only `WireError`s leave, which show no secret. What was read is written again as the same message.
"""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from wire import envelope
from wire.envelope import Secrets
from wire.errors import Code, WireError
from wire.settings import to_json
from wire.v1.bootstrap_pb2 import (
    BootstrapEnvelope,
    Identity,
    MaintenanceJob,
    Restore,
    ServiceEnvelope,
)

from guest.config import load
from tests.fuzz.material import Choices, Target, chosen, stateless
from tests.support.settings import configure, envelope_for

_CODES = {Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION}
_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "agent": {"provider": "openai", "model": "m", "api_key_env": "KEY"},
    "memory": {"remote_url": "https://db/{user_id}", "retention_days": 3},
    "shell": {"allow": ["git *"], "operators": False},
    "tools": {"enabled": ["typed"], "disabled": ["shell_exec"], "approval": "ask"},
}
_SHORTEST = 8
"""Shorter secrets, and plain words, are in an error by chance."""


def _one_input(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.below(3)
    body = choices.rest()
    if kind == 0:
        _framed(body)
    elif kind == 1:
        _service(len(body).to_bytes(4) + body)
    else:
        _agents(len(body).to_bytes(4) + body)


def _framed(data: bytes) -> None:
    """Bytes with a length of their own; nothing that follows an envelope is read."""
    for read in (envelope.read, envelope.read_service):
        stream = io.BytesIO(data)
        message = _refused_or(read, stream)
        length = int.from_bytes(data[:4])
        assert stream.tell() <= 4 + length
        assert message is None or stream.tell() == 4 + length


def _service(data: bytes) -> None:
    message = _refused_or(envelope.read_service, io.BytesIO(data))
    if message is not None:
        assert message.token
        assert envelope.read_service(io.BytesIO(envelope.encode(message))) == message


def _agents(data: bytes) -> None:
    message = _refused_or(envelope.read, io.BytesIO(data))
    if message is None:
        return
    assert envelope.read(io.BytesIO(envelope.encode(message))) == message
    secrets = [message.token, *Secrets.of(message.secrets).values(), message.identity.key]
    try:
        config = load(message)
    except WireError as error:
        _declared(error)
        harmless = str(message.user_id) + str(message.tier) + str(message.settings)
        for secret in secrets:
            by_chance = len(secret) < _SHORTEST or secret.isalpha() or secret in harmless
            assert by_chance or secret not in str(error), "an error shows a secret"
        return
    again = BootstrapEnvelope()
    again.CopyFrom(message)
    again.settings.clear()
    again.settings.update(to_json(config.settings))
    assert load(again) == config
    harmless = f"{config.settings} {config.user_id} {config.paths}"
    assert not any(secret in repr(config) and secret not in harmless for secret in config.redacted)


def _refused_or(read: Callable[[Any], Any], stream: io.BytesIO) -> Any:
    try:
        return read(stream)
    except WireError as error:
        _declared(error)
        return None


def _declared(error: WireError) -> None:
    assert error.code in _CODES, error.code
    assert error.brief
    assert WireError.of(error.fields()).fields() == error.fields()


def _seeds() -> Mapping[str, bytes]:
    plain = _complete()
    job, short, old, bad = (_complete() for _ in range(4))
    job.maintenance.CopyFrom(MaintenanceJob(restore=Restore(path="/b.db")))
    short.token = "short"
    old.version = 1
    configure(bad, "memory", remote_url="https://x:secret@y/")
    service = ServiceEnvelope(version=3, token="t" * 32, identity=_identity())
    framed = {
        "framed-agent": envelope.encode(plain),
        "framed-service": envelope.encode(service) + b"what follows",
        "framed-truncated": envelope.encode(service)[:20],
        "framed-oversized": b"\xff\xff\xff\xff",
        "framed-empty": b"",
    }
    agents = {"plain": plain, "job": job, "short": short, "old": old, "bad": bad}
    for section, settings in _SETTINGS.items():
        agents[section] = _complete()
        configure(agents[section], section, **settings)
    for name, document in (("not-a-table", "[[]]"), ("nested", "[" * 1000), ("not-json", "{")):
        agents[name] = _complete()
        agents[name].settings["agent"] = document
    return (
        {name: chosen(0, data) for name, data in framed.items()}
        | {"service": chosen(1, service.SerializeToString())}
        | {name: chosen(2, each.SerializeToString()) for name, each in agents.items()}
    )


def _complete() -> BootstrapEnvelope:
    made = envelope_for(Path("/w"))
    made.identity.CopyFrom(_identity())
    made.secrets.memory_key = "memory-key-0123456789"
    made.egress.endpoint = "unix:/w/egress/http.sock"
    made.egress.token = "listener-token-012345"
    made.egress.identity.CopyFrom(_identity())
    made.upstreams["openai"] = ""
    made.shell.endpoint = "unix:/w/ipc/shell.sock"
    made.shell.token = "shell-token-01234"
    made.shell.identity.CopyFrom(_identity())
    made.embedder.unavailable_reason = "none"
    return made


def _identity() -> Identity:
    return Identity(certificate="certificate", key="-----BEGIN KEY 01", authority="authority")


TARGET = Target("envelope", 120, stateless(_one_input), _seeds)
