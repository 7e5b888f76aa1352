"""What the settings and people allow, as egress gets it."""

from collections.abc import Iterable
from typing import Final

from wire.settings import EgressLimitSettings, EgressRoleSettings
from wire.v1 import egress_pb2

MB: Final = 1_000_000


def policy(
    role: EgressRoleSettings, grants: Iterable[egress_pb2.EgressGrant] = ()
) -> egress_pb2.EgressPolicy:
    """What one role may reach."""
    return egress_pb2.EgressPolicy(
        presets=role.presets, allow=role.allow, deny=role.deny, ask=role.ask, grants=grants
    )


def limits(settings: EgressLimitSettings) -> egress_pb2.EgressLimits:
    """How much each role may send and receive."""
    return egress_pb2.EgressLimits(
        connections=settings.connections,
        turn_requests=settings.turn_requests,
        turn_bytes=settings.turn_mb * MB,
        host_day_requests=settings.host_day_requests,
        host_day_bytes=settings.host_day_mb * MB,
        day_requests=settings.day_requests,
        day_bytes=settings.day_mb * MB,
    )


def is_open(policy: egress_pb2.EgressPolicy) -> bool:
    """Whether it allows anything, if only after a question."""
    granted = any(not grant.denied for grant in policy.grants)
    return bool(policy.presets or policy.allow or policy.ask or granted)
