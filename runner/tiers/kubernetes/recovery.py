"""What a runner leaves to the next one, which goes on with its pods: a private file of its own, on
its own volume. No guest and no store of the cluster has it."""

import base64
import json
import logging
from pathlib import Path
from typing import Any, Final

from wire.errors import WireError
from wire.v1 import egress_pb2

from runner.egress.configuration import Placeholders, StableSecrets
from runner.egress.grants import ROLES, Grants
from runner.host.authority import Authority
from runner.host.recovery import RecoveryState, RunningGuest
from runner.host.runtime import write_json
from runner.tiers.base import Handle
from runner.workspace.mounts import Role

log = logging.getLogger(__name__)
_VERSION: Final = 2


def load(path: Path) -> RecoveryState | None:
    """What an earlier runner has left; None if nothing, or nothing that can be read: then its
    guests are ended."""
    try:
        return _state(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, WireError) as error:
        log.warning("what an earlier runner has left cannot be read: %r", error)
        return None


def save(state: RecoveryState, path: Path) -> None:
    """Write it, completely or not at all, readable for nobody else."""
    kept = state.kept
    content = {
        "version": _VERSION,
        "authority": state.authority.to_pem(),
        "canary": state.canary,
        "agent_token": state.agent_token,
        "egress_tokens": [kept.agent_token, kept.shell_token],
        "placeholders": kept.placeholders,
        "grants": {
            role: [base64.b64encode(each.SerializeToString()).decode() for each in found]
            for role in ROLES
            if (found := kept.grants.of(role))
        },
        "guests": {
            role: {**vars(left), "handle": left.handle.to_json()}
            for role, left in state.guests.items()
        },
    }
    write_json(path, content)


def _state(content: dict[str, Any]) -> RecoveryState:
    if content["version"] != _VERSION:
        raise ValueError(f"it has version {content['version']}")
    grants = Grants()
    for role, found in content["grants"].items():
        for each in found:
            grants.add(role, egress_pb2.EgressGrant.FromString(base64.b64decode(each)))
    for_agent, for_shell = content["egress_tokens"]
    return RecoveryState(
        Authority.from_pem(content["authority"]),
        content["canary"],
        content["agent_token"],
        StableSecrets(for_agent, for_shell, Placeholders(content["placeholders"]), grants),
        {
            Role(role): RunningGuest(**{**left, "handle": Handle.from_json(left["handle"])})
            for role, left in content["guests"].items()
        },
    )
