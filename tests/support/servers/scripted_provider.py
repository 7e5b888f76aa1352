"""A provider that plays a script, for tests that run the real command: in a thread, and on
an address that containers reach as well."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from guest.agent.receipts.second_chance import FROM_THE_RUNTIME
from tests.support.servers import openai_server as provider
from tests.support.servers.openai_server import OpenAIServer, Reply, Request, untimed

Step = Callable[["Seen"], Reply]
"""From what the model is asked to what it answers."""


class Seen:
    """A request to the model, as a script looks at it."""

    def __init__(self, request: Request) -> None:
        self.messages = untimed(request)
        self.key = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.tools = [tool["function"]["name"] for tool in request.body.get("tools", ())]

    @property
    def system(self) -> str:
        """The instructions, and what the runtime says beside the user's message."""
        told = [one["content"] for one in self.messages if one["role"] in ("system", "developer")]
        told += [each for each in self.said if each.startswith(FROM_THE_RUNTIME)]
        return "\n\n".join(told)

    @property
    def said(self) -> list[str]:
        """The messages in the user's role."""
        return [one["content"] for one in self.messages if one["role"] == "user"]

    @property
    def results(self) -> list[str]:
        """What the tools of the running turn answered, in order."""
        last = max(n for n, one in enumerate(self.messages) if one["role"] == "user")
        return [one["content"] for one in self.messages[last:] if one["role"] == "tool"]

    def result(self, number: int = -1) -> Any:
        """One of these results, read as JSON."""
        return json.JSONDecoder().raw_decode(self.results[number])[0]


class Script:
    """The model's next steps; `seen` is what it was asked so far."""

    def __init__(self, server: OpenAIServer, address: str) -> None:
        self._server = server
        self.base_url = f"http://{address}:{server.port}/v1"
        self.seen: list[Seen] = []
        self.problems: list[BaseException] = []

    def play(self, *steps: Step) -> None:
        """Answer the coming requests with `steps`, in order."""
        self._server.replies[:] = [self._playing(step) for step in steps]

    def _playing(self, step: Step) -> Reply:
        async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
            seen = Seen(request)
            self.seen.append(seen)
            try:
                answer = step(seen)
            except Exception as error:
                self.problems.append(error)
                answer = provider.error("400 Bad Request", repr(error))
            await answer(request, writer)

        return reply


def says(*pieces: str) -> Step:
    """An answer, in these pieces."""
    return lambda _: provider.says(*pieces)


def calls(tool: str, **arguments: Any) -> Step:
    """One tool call. An argument may be a function of what the model has seen."""

    def step(seen: Seen) -> Reply:
        given = {
            name: value(seen) if callable(value) else value for name, value in arguments.items()
        }
        return provider.calls((f"call-{len(seen.messages)}", tool, json.dumps(given)))

    return step


async def _ended(server: asyncio.Server) -> None:
    """Close the server, and break off answers that still hang."""
    server.close()
    hanging = asyncio.all_tasks() - {asyncio.current_task()}
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


@contextmanager
def scripted(address: str = "127.0.0.1") -> Iterator[Script]:
    """A provider at `address`, which the script's `base_url` names."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    running = OpenAIServer([provider.says("there is no script")])

    async def start() -> asyncio.Server:
        return await asyncio.start_server(running.handle, address, 0, limit=2**20)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    running.port = server.sockets[0].getsockname()[1]
    script = Script(running, address)
    try:
        yield script
    finally:
        asyncio.run_coroutine_threadsafe(_ended(server), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
    assert not script.problems, script.problems
