"""What a model reads with placeholders for its secrets, it writes with the secrets."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from guest.tools.base import Arguments, Safety, Tool, ToolContext, ToolOutput
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots
from guest.tools.memory.notes import memory_tools
from guest.tools.memory.typed import typed_memory_tools
from guest.tools.memory.working import working_memory_tools
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.memory.store import opened
from tests.support.tools.pipelines import ALICE, SECRET

ELSEWHERE = replace(ALICE, session_id="session-2")
KEY = "sk-proj-0123456789abcdefghij"
ENV = f"NAME=app\nDB_PASSWORD=hunter22!\nAPI_KEY={KEY}\nDEBUG=1\n"
BODY = "MIIEpAIBAAKCAQEA7bq8mJ0Q" * 3
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + f"{BODY}\n" * 20 + "-----END RSA PRIVATE KEY-----\n"


class CommandArguments(Arguments):
    command: str
    stdin: str = Field(default="")


@dataclass
class User:
    """Alice's files, notes and a shell that repeats what it was given."""

    base: Path
    pipeline: ToolPipeline
    commands: list[str]

    async def call(self, name: str, ctx: ToolContext = ALICE, **arguments: Any) -> str:
        result = await self.pipeline.call(ctx, name, arguments)
        assert not result.is_error, result.text
        return result.text.split("\nNote: ")[0]

    async def refusal(self, name: str, ctx: ToolContext = ALICE, **arguments: Any) -> str:
        result = await self.pipeline.call(ctx, name, arguments)
        assert result.is_error, result.text
        return result.text

    async def read(self, path: str, ctx: ToolContext = ALICE, **arguments: Any) -> str:
        return str(json.loads(await self.call("file_read", ctx, path=path, **arguments))["content"])

    async def noted(self, query: str, ctx: ToolContext = ALICE) -> str:
        return str(json.loads(await self.call("memory_search", ctx, query=query))[0]["text"])

    def file(self, name: str) -> Path:
        return self.base / "shared" / name


@pytest.fixture
async def user(tmp_path: Path) -> AsyncIterator[User]:
    for name in ("shared", "tmp", "vault"):
        (tmp_path / name).mkdir()
    roots = Roots({name: tmp_path / name for name in ("shared", "tmp", "vault")})
    commands: list[str] = []

    async def run(_: ToolContext, arguments: CommandArguments) -> ToolOutput:
        commands.append(arguments.command + arguments.stdin)
        return ToolOutput({"stdout": ENV})

    shell = Tool("shell_exec", "", CommandArguments, Safety.PRIVILEGED, 5.0, run, command="command")
    async with opened(tmp_path / "memory.db") as memory:
        tools = [
            *file_tools(roots),
            *memory_tools(memory),
            *typed_memory_tools(memory),
            *working_memory_tools(memory),
            shell,
        ]
        yield User(tmp_path, ToolPipeline(Registry(tools), scrubber=Scrubber([SECRET])), commands)
    roots.close()


def placeholders(text: str) -> list[str]:
    return re.findall(r"\[redacted:[0-9a-f]{12}\]", text)


async def test_a_file_that_is_read_and_written_keeps_its_secrets(user: User) -> None:
    user.file("app.env").write_text(ENV)
    shown = await user.read("/shared/app.env")
    assert "hunter22" not in shown
    assert KEY not in shown
    assert len(set(placeholders(shown))) == 2
    await user.call(
        "file_write", path="/shared/app.env", content=shown.replace("DEBUG=1", "DEBUG=0")
    )
    assert user.file("app.env").read_text() == ENV.replace("DEBUG=1", "DEBUG=0")


async def test_a_piece_of_a_file_is_found_and_replaced_by_its_placeholder(user: User) -> None:
    user.file("app.env").write_text(ENV)
    word = placeholders(await user.read("/shared/app.env"))[0]
    await user.call(
        "file_edit",
        path="/shared/app.env",
        old=f"NAME=app\nDB_PASSWORD={word}",
        new=f"NAME=web\nDATABASE_PASSWORD={word}",
    )
    expected = ENV.replace("NAME=app", "NAME=web").replace("DB_PASS", "DATABASE_PASS")
    assert user.file("app.env").read_text() == expected


@pytest.mark.parametrize(
    ("tool", "field", "more"),
    [
        ("memory_save", "content", {}),
        ("remember", "content", {}),
        ("write_memory", "content", {"key": "access"}),
        ("write_session_handoff", "content", {}),
        ("scratch_note", "content", {"mode": "replace"}),
    ],
)
async def test_a_note_that_is_read_and_written_keeps_its_secret(
    user: User, tool: str, field: str, more: Any
) -> None:
    await user.call("memory_save", content=f"The server's password: hunter22! and key {KEY}")
    shown = await user.noted("server password")
    assert "hunter22" not in shown
    given: dict[str, Any] = {field: f"{shown} of today", **more}
    await user.call(tool, **given)
    again = await user.noted("server password today")
    assert placeholders(again) == placeholders(shown)
    stored = await user.noted("server password today", ELSEWHERE)
    assert set(placeholders(stored)).isdisjoint(placeholders(shown)), "a placeholder was stored"
    found = json.loads(await user.call("memory_search", query="server password"))[0]
    await user.call(
        "memory_update", note_id=found["note_id"], content=f"{found['text']} for good", tags=[]
    )
    assert placeholders(await user.noted("server password for good")) == placeholders(shown)


async def test_a_placeholder_is_the_same_in_its_session_and_nothing_in_another(user: User) -> None:
    user.file("app.env").write_text(ENV)
    shown = await user.read("/shared/app.env")
    assert await user.read("/shared/app.env") == shown
    by_command = json.loads(await user.call("shell_exec", command="cat /shared/app.env"))["stdout"]
    assert by_command == shown
    for other in (ELSEWHERE, replace(ALICE, user_id="bob")):
        refusal = await user.refusal("file_write", other, path="/shared/app.env", content=shown)
        assert refusal.startswith("nothing was changed: [redacted:")
        assert "not known in this session" in refusal
    assert set(placeholders(await user.read("/shared/app.env", ELSEWHERE))).isdisjoint(
        placeholders(shown)
    )
    assert user.file("app.env").read_text() == ENV
    user.pipeline.forget(ALICE.user_id, ALICE.session_id)
    assert "not known" in await user.refusal("file_write", path="/shared/x", content=shown)


@pytest.mark.parametrize(
    "word", ["[redacted]", "[redacted:0123456789ab]", "[redacted:0123", "[redacted:]"]
)
async def test_what_cannot_be_turned_back_is_not_written(user: User, word: str) -> None:
    """As after a restart, which forgets what stood for what."""
    user.file("app.env").write_text(ENV)
    text = f"DB_PASSWORD={word}\n"
    for refused in (
        user.refusal("file_write", path="/shared/app.env", content=text),
        user.refusal("file_edit", path="/shared/app.env", old="NAME=app", new=text),
        user.refusal("memory_save", content=text),
        user.refusal("memory_save", content="x", tags=[word]),
        user.refusal("remember", content="x", rationale=text),
    ):
        assert (await refused).startswith("nothing was changed: [redacted")
    assert user.file("app.env").read_text() == ENV


async def test_a_command_gets_neither_a_secret_nor_its_placeholder(user: User) -> None:
    user.file("app.env").write_text(ENV)
    word = placeholders(await user.read("/shared/app.env"))[0]
    attempts: list[dict[str, Any]] = [
        {"command": f"echo 'DB_PASSWORD={word}' > /shared/app.env"},
        {"command": "cat > /shared/app.env", "stdin": f"DB_PASSWORD={word}"},
        {"command": "echo 'DB_PASSWORD=[redacted]' > /shared/app.env"},
    ]
    for arguments in attempts:
        assert "stands for a secret" in await user.refusal("shell_exec", **arguments)
    assert "stands for a secret" in await user.refusal("file_delete", path=f"/shared/{word}")
    assert user.commands == []


async def test_what_only_memory_or_the_vault_holds_reaches_no_place_of_commands(user: User) -> None:
    (user.base / "vault" / "app.env").write_text(ENV)
    from_vault = await user.read("/vault/app.env")
    await user.call("memory_save", content="The mail password: swordfish99")
    for text in (from_vault, await user.noted("mail password")):
        for path in ("/shared/app.env", "/tmp/app.env"):
            refusal = await user.refusal("file_write", path=path, content=text)
            assert "is from memory or /vault" in refusal
    assert not user.file("app.env").exists()
    await user.call("memory_save", content=from_vault)
    assert placeholders(await user.noted("DB_PASSWORD")) == placeholders(from_vault)
    user.file("same.env").write_text(ENV)
    await user.call(
        "file_write", path="/shared/app.env", content=await user.read("/shared/same.env")
    )
    assert user.file("app.env").read_text() == ENV


async def test_a_secret_is_not_put_where_it_would_be_read_in_clear(user: User) -> None:
    user.file("app.env").write_text(ENV)
    word = placeholders(await user.read("/shared/app.env"))[0]
    for refused in (
        user.refusal("file_write", path="/shared/x", content=f"the word is {word} for now\n"),
        user.refusal("memory_save", content=f"the word is {word} for now"),
    ):
        assert "would be readable in its new place" in await refused
    await user.call("memory_save", content=f"the database's password: {word}")
    assert "hunter22" not in await user.noted("database password", ELSEWHERE)


async def test_a_secret_that_was_shown_stays_hidden_without_its_name(user: User) -> None:
    secret = "correct-horse-battery-1"
    user.file("app.env").write_text(f"PASSWORD={secret}\n")
    user.file("plain").write_text(f"the word is {secret}\n")
    shown = await user.read("/shared/app.env")
    assert placeholders(await user.read("/shared/plain")) == placeholders(shown)


async def test_text_that_only_says_redacted_is_kept_as_well(user: User) -> None:
    text = f"Secrets are shown as [redacted].\npassword: [redacted]\nAPI_KEY={KEY}\n"
    user.file("guide.md").write_text(text)
    shown = await user.read("/shared/guide.md")
    assert len(placeholders(shown)) == 3
    await user.call("file_write", path="/shared/guide.md", content=shown)
    assert user.file("guide.md").read_text() == text


async def test_the_parts_of_a_secret_make_the_whole_again(user: User) -> None:
    text = f"before\n{PEM}after\n"
    user.file("key.pem").write_text(text)
    first = await user.read("/shared/key.pem", limit=10)
    second = await user.read("/shared/key.pem", offset=11)
    assert BODY not in first + second
    await user.call("file_write", path="/shared/copy.pem", content=first + second)
    assert user.file("copy.pem").read_text() == text


async def test_a_secret_of_the_launch_is_put_back_nowhere(user: User) -> None:
    text = f"TOKEN={SECRET}\nDEBUG=1\n"
    user.file("app.env").write_text(text)
    shown = await user.read("/shared/app.env")
    assert shown == "TOKEN=[redacted]\nDEBUG=1\n"
    refusal = await user.refusal("file_write", path="/shared/app.env", content=shown)
    assert "put back nowhere" in refusal
    await user.call("file_edit", path="/shared/app.env", old="DEBUG=1", new="DEBUG=0")
    assert user.file("app.env").read_text() == text.replace("DEBUG=1", "DEBUG=0")


async def test_an_answer_about_a_write_shows_no_secret(user: User) -> None:
    user.file("app.env").write_text(ENV)
    word = placeholders(await user.read("/shared/app.env"))[0]
    await user.call("memory_save", content=f"database password: {word}")
    found = json.loads(await user.call("memory_search", query="database password"))[0]
    stale = await user.refusal("memory_update", note_id=found["note_id"], content="x", version=9)
    assert word in stale
    assert "hunter22" not in stale
