"""What the next runner needs to go on with guests that run: their launches, and the secrets between
them. It is a private file of the runner's own, on its own volume; no guest and no store of the
cluster has it."""

import base64
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from wire.errors import WireError
from wire.v1 import egress_pb2

from runner.boundary.spec import new_canary
from runner.egress.configuration import Placeholders, StableSecrets
from runner.egress.grants import ROLES, Grants
from runner.host.authority import Authority
from runner.host.runtime import write_json
from runner.tiers.base import Handle
from runner.workspace.mounts import Role

log = logging.getLogger(__name__)
_VERSION: Final = 2


@dataclass(frozen=True)
class RunningGuest:
    """One guest that runs: its handle, the runner's token for it, and what makes its launch equal
    to another one."""

    handle: Handle
    token: str = field(repr=False)
    fingerprint: str


@dataclass(frozen=True, repr=False)
class RecoveryState:
    """The secrets of one user's guests, and those that run."""

    authority: Authority
    canary: str
    agent_token: str
    """The agent's, for the shell."""
    kept: StableSecrets
    guests: Mapping[Role, RunningGuest] = field(default_factory=dict)

    @classmethod
    def new(cls, agent_token: str = "") -> Self:
        """For guests that nobody has started yet."""
        return cls(Authority.new(), new_canary(), agent_token, StableSecrets())

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """What an earlier runner has left; None if nothing, or nothing that can be read: then its
        guests are ended."""
        try:
            return cls._of(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, WireError) as error:
            log.warning("what an earlier runner has left cannot be read: %r", error)
            return None

    def save(self, path: Path) -> None:
        """Write it, completely or not at all, readable for nobody else."""
        write_json(path, self._content())

    def _content(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "authority": self.authority.to_pem(),
            "canary": self.canary,
            "agent_token": self.agent_token,
            "egress_tokens": [self.kept.agent_token, self.kept.shell_token],
            "placeholders": self.kept.placeholders,
            "grants": {
                role: [base64.b64encode(each.SerializeToString()).decode() for each in found]
                for role in ROLES
                if (found := self.kept.grants.of(role))
            },
            "guests": {
                role: {
                    "handle": left.handle.to_json(),
                    "token": left.token,
                    "fingerprint": left.fingerprint,
                }
                for role, left in self.guests.items()
            },
        }

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        if content["version"] != _VERSION:
            raise ValueError(f"it has version {content['version']}")
        grants = Grants()
        for role, found in content["grants"].items():
            for each in found:
                grants.add(role, egress_pb2.EgressGrant.FromString(base64.b64decode(each)))
        for_agent, for_shell = content["egress_tokens"]
        kept = StableSecrets(for_agent, for_shell, Placeholders(content["placeholders"]), grants)
        guests = {
            Role(role): RunningGuest(
                Handle.from_json(each["handle"]), each["token"], each["fingerprint"]
            )
            for role, each in content["guests"].items()
        }
        return cls(
            Authority.from_pem(content["authority"]),
            content["canary"],
            content["agent_token"],
            kept,
            guests,
        )
