"""What the next runner needs to go on with guests that run: their launches, and the secrets between
them. Where guests outlive the runner, the tier's `Placement` stores it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from runner.boundary.spec import new_canary
from runner.egress.configuration import StableSecrets
from runner.host.authority import Authority
from runner.tiers.base import Handle
from runner.workspace.mounts import Role


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
