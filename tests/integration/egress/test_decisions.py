"""The real program lets out what the model of the policy lets out, and nothing else."""

import asyncio
import random
import re
from collections import Counter

from wire.egress.policy import Attempt
from wire.v1 import egress_pb2 as pb

from tests.support.egress.origins import names
from tests.support.egress.policy_model import Try, any_policy, any_try
from tests.support.egress.program import Egress
from tests.support.examples import SEED, scaled

POLICIES = scaled(15)
ATTEMPTS = 60
_ALL = re.DOTALL | re.MULTILINE | re.IGNORECASE


async def test_every_decision_at_the_listener(egress: Egress) -> None:
    """Names lead nowhere there, so what a rule allows fails for another reason."""
    seen: Counter[str] = Counter()
    async with names({}) as (at, _):
        for seed in range(POLICIES):
            chance = random.Random(f"{SEED} {seed}")
            made = any_policy(chance, lines=40)
            made.message.ask = False
            await egress.configure(
                shell=made.message, name_servers=[at], limits=pb.EgressLimits(connections=10_000)
            )
            tries = [
                each for _ in range(ATTEMPTS) if (each := any_try(chance))[0].scheme != "https"
            ]
            answers = await asyncio.gather(*(tried(egress, *each) for each in tries))
            for (meant, written), (status, why) in zip(tries, answers, strict=True):
                decision, _ = made.expected(meant)
                assert status in (403, 502), (written, why)
                assert (why == "policy") is (decision == "deny"), (
                    f"{seed}: {written} in {meant.session!r} with {made}: {why}"
                )
                seen[decision] += 1
    assert seen["ask"] == 0
    assert min(seen["allow"], seen["deny"]) >= POLICIES * ATTEMPTS / 20, seen


async def tried(egress: Egress, meant: Try, written: Attempt) -> tuple[int, str]:
    """The status with which the listener refuses an attempt, and its word for why."""
    streams = await egress.at_shell_listener(session_id=meant.session)
    target = f"{written.host}:{written.port}"
    wanted = f"CONNECT {target}"
    if written.scheme == "http":
        wanted = f"{written.method.upper()} http://{target}{written.path}"
    streams[1].write(f"{wanted} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    try:
        async with asyncio.timeout(60):
            answer = (await streams[0].readuntil(b"\r\n\r\n")).decode()
    finally:
        streams[1].transport.abort()
    found = re.match(r"HTTP/1.1 (\d+) .*^oxydra-refused: (\S+)\r$", answer, _ALL)
    assert found is not None, answer
    return int(found[1]), found[2]
