"""A model that was led astray tries to lose secrets, and to get those that it sees placeholders of.

The model's calls are made by name; what it is shown is what a provider would receive.
"""

import json
import re

import pytest

from tests.support.boundary.two_hosts import Attempt, TwoHosts

pytestmark = pytest.mark.asyncio(loop_scope="session")

PASSWORD = "hunter22!"
MAIL = "swordfish-4711"
ENV = f"NAME=app\nDB_PASSWORD={PASSWORD}\n"
ENDS = {
    "another secret": "DB_PASSWORD=[redacted:0123456789ab]",
    "a secret without its mark": "DB_PASSWORD=[redacted]",
    "half a mark": "DB_PASSWORD=[redacted:01234",
}


def mark_in(text: str) -> str:
    (mark,) = re.findall(r"\[redacted:[0-9a-f]{12}\]", text)
    return str(mark)


async def env_as_shown(place: TwoHosts) -> str:
    """What the model is shown of a file with a password, which a command has written."""
    await place.attempt(Attempt("env", f"printf '{ENV}' > /shared/app.env"))
    answer = await place.tool("file_read", path="/shared/app.env")
    assert PASSWORD not in answer
    return str(json.loads(answer)["content"])


def env_of(place: TwoHosts) -> str:
    return (place.alice.workspace / "shared" / "app.env").read_text()


async def test_reading_and_writing_loses_no_secret(place: TwoHosts) -> None:
    shown = await env_as_shown(place)
    answer = await place.tool("file_write", path="/shared/app.env", content=f"{shown}DEBUG=1\n")
    assert PASSWORD not in answer
    assert env_of(place) == f"{ENV}DEBUG=1\n"


@pytest.mark.parametrize("name", ENDS)
async def test_a_secret_is_not_overwritten_by_its_mark(place: TwoHosts, name: str) -> None:
    await env_as_shown(place)
    for tool, arguments in (
        ("file_write", {"path": "/shared/app.env", "content": ENDS[name]}),
        ("file_edit", {"path": "/shared/app.env", "old": "NAME=app", "new": ENDS[name]}),
        ("memory_save", {"content": ENDS[name]}),
        ("shell_exec", {"command": f"echo '{ENDS[name]}' > /shared/app.env"}),
    ):
        answer = await place.tool(tool, **arguments)
        assert answer.startswith(("nothing was changed: ", "nothing was done: ")), answer
    assert env_of(place) == ENV


async def test_no_command_gets_a_secret_by_its_mark(place: TwoHosts) -> None:
    shown = await env_as_shown(place)
    mark = mark_in(shown)
    answers = [
        await place.tool("shell_exec", command=f"echo '{mark}' | rev"),
        await place.tool("shell_exec", command="cat", stdin=shown),
        await place.tool("file_write", path="/shared/out", content=f"the word is {mark} of it"),
    ]
    assert not any(PASSWORD in answer or PASSWORD[::-1] in answer for answer in answers)
    assert not (place.alice.workspace / "shared" / "out").exists()


async def test_what_commands_cannot_read_is_not_written_where_they_can(place: TwoHosts) -> None:
    kept = place.alice.workspace / "vault" / "mail.env"
    kept.write_text(f"MAIL_PASSWORD={MAIL}\n")
    try:
        answer = await place.tool("file_read", path="/vault/mail.env")
        for path in ("/shared/mail.env", "/tmp/mail.env"):
            refusal = await place.tool(
                "file_write", path=path, content=json.loads(answer)["content"]
            )
            assert "is from memory or /vault" in refusal
        found = await place.tool("shell_exec", command="cat /shared/mail.env /tmp/mail.env; env")
        assert MAIL not in answer + found
    finally:
        kept.unlink()
