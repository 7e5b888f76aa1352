"""What people have allowed and denied since the host began."""

import re
from collections import defaultdict
from typing import Final

from wire.egress.policy import spelled
from wire.errors import Code
from wire.limits import ID_PATTERN
from wire.v1 import egress_pb2

from runner.errors import HostError

ROLES: Final = ("agent", "shell")
GRANTS_MAX: Final = 1_000
"""Of one role. Each costs time at every request."""
_ID: Final = re.compile(ID_PATTERN, re.ASCII)


class Grants:
    """The grants of one user, by role, until the host ends. They are kept in memory only."""

    def __init__(self) -> None:
        self._grants: defaultdict[str, list[egress_pb2.EgressGrant]] = defaultdict(list)

    def of(self, role: str) -> tuple[egress_pb2.EgressGrant, ...]:
        """The grants of one role, oldest first."""
        return tuple(self._grants[role])

    def add(self, role: str, grant: egress_pb2.EgressGrant) -> bool:
        """Keep a grant, in place of one that says the opposite; false if it was there already.

        Raises `HostError` for what is no role, rule or session, or if there are too many grants.
        """
        grant, opposite = _checked(role, grant), egress_pb2.EgressGrant()
        opposite.CopyFrom(grant)
        opposite.denied = not grant.denied
        grants = self._grants[role]
        if grant in grants:
            return False
        if opposite in grants:
            grants.remove(opposite)
        for over in [each for each in grants if each.turn_id][: -GRANTS_MAX // 10]:
            grants.remove(over)  # those of single turns make room
        if len(grants) >= GRANTS_MAX:
            raise HostError(
                Code.RESOURCE_EXHAUSTED,
                f"there are {GRANTS_MAX} grants for the {role} already",
                resolution="write what has to stay into runner.toml, then: runner stop, and start",
            )
        grants.append(grant)
        return True

    def withdraw(self, role: str, grant: egress_pb2.EgressGrant) -> bool:
        """Take a grant back; false if there was none. Raises like `add`."""
        grant = _checked(role, grant)
        if grant not in self._grants[role]:
            return False
        self._grants[role].remove(grant)
        return True


def _checked(role: str, grant: egress_pb2.EgressGrant) -> egress_pb2.EgressGrant:
    """The grant, its rule in its one spelling."""
    if role not in ROLES:
        raise HostError(
            Code.INVALID_ARGUMENT,
            f"unknown role {role[:40]!r}",
            details=f"accepted: {', '.join(ROLES)}",
        )
    if grant.session_id and not _ID.fullmatch(grant.session_id):
        raise HostError(
            Code.INVALID_ARGUMENT,
            f"{grant.session_id[:40]!r} is not a session id",
            resolution="runner sessions list",
        )
    try:
        rule = spelled(grant.rule)
    except ValueError as error:
        raise HostError(
            Code.INVALID_ARGUMENT,
            f"{grant.rule[:80]!r} is not a rule: {error}",
            details='accepted: [METHODS ][scheme://]host[:port][/path], or "preset NAME"',
        ) from None
    within = {"session_id": grant.session_id, "turn_id": grant.turn_id}
    return egress_pb2.EgressGrant(rule=rule, denied=grant.denied, **within)
