"""Which session a person means who types only how its id begins."""

from typing import Final

from wire.errors import Code, WireError

from runner.cli.render import one_line
from runner.gateway_client import GatewayClient

LISTED_MAX: Final = 1000
_PREFIX: Final = "session-"


async def resolve(gateway: GatewayClient, given: str) -> str:
    """The id that `given` is or begins; `session-` in front may be left out.

    With more sessions than can be listed, only a whole id is known to be unique.
    Raises `WireError` where `given` begins none or several.
    """
    listed = await gateway.list_sessions(LISTED_MAX, include_archived=True)
    ids = [session.session_id for session in listed]
    if given in ids or len(ids) == LISTED_MAX:
        return given
    found = [each for each in ids if each.startswith((given, _PREFIX + given))] if given else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise WireError(
            Code.NOT_FOUND,
            f"session not found: {given}",
            details="no id begins so",
            resolution="runner sessions list --all",
        )
    raise WireError(
        Code.INVALID_ARGUMENT,
        f"{len(found)} sessions begin with {given}",
        details=", ".join(map(one_line, found[:5])),
        resolution="give more of the id",
    )
