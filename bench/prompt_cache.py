"""How much of a conversation's prompts a provider can read from its cache.

The provider here is scripted: it takes each request's tools and messages as text, compares them
with the request before, and reports what both begin with as cached, as providers do that keep
prefixes. Run alone: `python -m bench.prompt_cache`.
"""

import asyncio
import json
from typing import Final

from tests.support.gateway.gateways import open_gateways
from tests.support.servers import openai_server as provider
from tests.support.servers.openai_server import Request, openai_server

_CHARS_PER_TOKEN: Final = 4
_NOTES: Final = (
    "The boat is called Nina and lies in Lübeck",
    "The dog is called Rex and gets his pills on Tuesdays",
    "The bike has 28 inch wheels and a belt drive",
    "Grandmother's recipe for plum cake needs 80 g of butter",
    "The landlord is Mr Petersen, and he answers mails only",
    "The car's next inspection is due in March 2027",
    "The violin was repaired by Ms Haas in May",
    "The router's admin page is at 192.168.178.1",
    "The tax adviser wants all receipts by the end of January",
    "The garden's tap must be closed before the first frost",
)
_QUESTIONS: Final = (
    "where does the boat lie?",
    "when does the dog get his pills?",
    "what wheels has the bike?",
    "how much butter for the plum cake?",
    "how does the landlord answer?",
    "when is the car's inspection due?",
    "who repaired the violin?",
    "where is the router's admin page?",
    "when does the tax adviser want the receipts?",
    "when must the garden's tap be closed?",
)


class _Caching:
    """Answers every request with a paragraph, and reports what it has in common with the last."""

    def __init__(self) -> None:
        self._last = ""

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        text = json.dumps([request.body.get("tools", []), request.body["messages"]])
        same = _common(text, self._last)
        self._last = text
        tokens, cached = len(text) // _CHARS_PER_TOKEN, same // _CHARS_PER_TOKEN
        answer = {
            "role": "assistant",
            "content": " ".join(f"It is as you have noted it under number {n}." for n in range(12)),
        }
        await provider.stream(answer, usage=(tokens, 80, cached))(request, writer)


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


async def run(full: bool = False) -> list[str]:  # noqa: ARG001 - it has one size
    """Lines of the report: the shares over ten turns, and those of the last turn alone."""
    async with (
        openai_server(_Caching()) as server,
        open_gateways(provider="openai", model="m", base_url=server.base_url) as gateways,
    ):
        alice = await gateways.serve("alice")
        for note in _NOTES:
            await alice.save(note)
        session = await alice.session()
        turns = [(await alice.say(session, question))[-1].completed for question in _QUESTIONS]
    tokens, cached = sum(t.input_tokens for t in turns), sum(t.cached_tokens for t in turns)
    last = turns[-1]
    return [
        f"prompt cache ({len(turns)} turns, each of which brings another note into the prompt)",
        f"  read from the cache   {cached:6,} of {tokens:6,} tokens   {cached / tokens:4.0%}",
        f"  in the last turn      {last.cached_tokens:6,} of {last.input_tokens:6,} tokens   "
        f"{last.cached_tokens / last.input_tokens:4.0%}",
    ]


if __name__ == "__main__":
    print("\n".join(asyncio.run(run())))
