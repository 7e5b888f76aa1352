"""A guest composed in this process, which tells when it has imported what comes late.

`python -m tests.support.guests.composed DIRECTORY` prints one JSON object.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

from wire.v1 import gateway_pb2 as pb

from guest import composition
from guest.agent.models.models import Models
from guest.config import load
from guest.gateway.service import Context, GatewayService
from guest.memory.memory import Memory
from guest.tools.files.roots import Roots
from tests.support.settings import envelope_for

_NOBODY = cast(Context, None)


_LATE = ("pydantic_ai", "genai_prices", "guest.memory.transfer.format")


def _imported() -> list[str]:
    return [name for name in _LATE if name in sys.modules]


async def _turn(service: GatewayService, session: str) -> str:
    await service.CreateSession(pb.CreateSessionRequest(session_id=session), _NOBODY)
    started = await service.StartTurn(pb.StartTurnRequest(session_id=session, text="help"), _NOBODY)
    following = pb.FollowTurnRequest(turn_id=started.turn_id)
    events = [each async for each in service.FollowTurn(following, _NOBODY)]
    return str(events[-1].WhichOneof("event"))


async def _told(place: Path) -> dict[str, Any]:
    envelope = envelope_for(place)
    for name in ("internal", "shared", "tmp", "vault", "ipc"):
        (place / name).mkdir()
    config = load(envelope)
    memory = await Memory.open(config.memory, None, config.user_id)
    roots = Roots(config.paths.virtual, config.paths.private)
    service = composition.gateway(
        config, models=Models(config.settings.agent), memory=memory, roots=roots, shell=None
    )
    said = await service.Hello(pb.HelloRequest(), _NOBODY)
    for name, arguments in (
        ("memory_save", {"content": "the boat is called Fram"}),
        ("memory_search", {"query": "boat"}),
    ):
        call = pb.CallToolRequest(name=name, arguments_json=json.dumps(arguments))
        called = await service.CallTool(call, _NOBODY)
    listed = await service.ListTurns(pb.ListTurnsRequest(), _NOBODY)
    before = _imported()
    turns = asyncio.gather(_turn(service, "a"), _turn(service, "b"))
    beats = 0
    while not turns.done():
        await asyncio.sleep(0.01)
        beats += 1
    told = {
        "model": said.model,
        "found": called.text,
        "turns before": len(listed.turns),
        "imported before": before,
        "imported after": _imported(),
        "turns": await turns,
        "beats": beats,
    }
    await service.close()
    await memory.close()
    roots.close()
    return told


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_told(Path(sys.argv[1])))))
