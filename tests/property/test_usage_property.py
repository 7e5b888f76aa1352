"""Requests that are reserved, settled, refused and abandoned in any order: no cap is exceeded."""

import asyncio
import random
import tempfile
from pathlib import Path
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from guest.memory.memory import Memory
from guest.memory.usage import Amount, Cap, CapReached, Kind, ModelRequest, Scope, Unit
from tests.support.examples import scaled
from tests.support.settings import memory_config

REQUESTS = scaled(30)
CAPS = st.lists(
    st.builds(
        Cap,
        st.sampled_from(("session", "day", "month", "background_day")),
        st.sampled_from(("usd", "tokens")),
        st.integers(0, 3_000),
    ),
    min_size=1,
    max_size=6,
)
_IN_SCOPE: dict[Scope, str] = {
    "session": "session_id",
    "day": "day",
    "month": "substr(day, 1, 7)",
    "background_day": "day",
}
_TAKEN: dict[Unit, str] = {"usd": "cost", "tokens": "input_tokens + output_tokens"}


async def most_taken(memory: Memory, cap: Cap) -> int:
    """The most that requests together take in any one scope of `cap`."""
    only = "kind <> 'answer'" if cap.scope == "background_day" else "1"
    result = await memory.store.database.execute(
        f"SELECT SUM({_TAKEN[cap.unit]}) AS taken FROM model_requests WHERE {only} "
        f"GROUP BY {_IN_SCOPE[cap.scope]} ORDER BY taken DESC LIMIT 1"
    )
    return int(result.rows[0][0] or 0) if result.rows else 0


async def one(memory: Memory, number: int, dice: random.Random, caps: list[Cap]) -> bool:
    """Reserve a request, and end it in some way; whether it was sent."""
    kind: Kind = dice.choice(get_args(Kind))
    request = ModelRequest(
        request_id=f"r{number}",
        session_id=dice.choice("abc"),
        turn_id="t",
        kind=kind,
        provider="openai",
        model="gpt",
        sent_at="2026-11-22T00:00:00.000000Z",
        day=dice.choice(("2026-11-01", "2026-11-30", "2026-12-01")),
    )
    most = Amount(dice.randrange(400), dice.randrange(200), cost=dice.randrange(500))
    held = [each for each in caps if kind == "summary" or each.scope != "background_day"]
    try:
        await memory.usage.reserve(request, most, held)
    except CapReached:
        return False
    for _ in range(dice.randrange(4)):
        await asyncio.sleep(0)
    end = dice.randrange(4)
    if end == 0:
        await memory.usage.release(request)
    elif end > 1:
        taken = Amount(
            dice.randint(0, most.input_tokens),
            dice.randint(0, most.output_tokens),
            cost=dice.randint(0, most.cost or 0),
        )
        await memory.usage.settle(request, taken, "reported")
    return True


@given(CAPS, st.integers(0, 2**32))
def test_no_cap_is_ever_exceeded(caps: list[Cap], seed: int) -> None:
    async def run() -> None:
        dice = random.Random(seed)
        with tempfile.TemporaryDirectory() as place:
            memory = await Memory.open(memory_config(Path(place) / "m.db"), None, "alice")
            done = False

            async def watch() -> None:
                while not done:
                    for cap in caps:
                        assert await most_taken(memory, cap) <= cap.most
                    await asyncio.sleep(0)

            watching = asyncio.create_task(watch())
            await asyncio.gather(*(one(memory, n, dice, caps) for n in range(REQUESTS)))
            done = True
            await watching
            await memory.close()

    asyncio.run(run())
