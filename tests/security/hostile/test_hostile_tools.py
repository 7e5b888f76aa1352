"""A model that was led astray calls tools with an attacker's arguments."""

import os
from typing import Any

import pytest
from wire.v1 import gateway_pb2

from tests.support.attempts import attempt
from tests.support.boundary.two_hosts import Attempt, TwoHosts, denied

pytestmark = pytest.mark.asyncio(loop_scope="session")

PARSED = "a path is parsed before anything is opened: /shared, /tmp and /vault, and no other"
BENEATH = "the kernel resolves paths beneath a root (openat2); `..` may not lead out of it"
LITERAL = "a path is taken as it is written: nothing in it is decoded, expanded or normalised"


def path_that(what: str, path: str, stopped_by: str) -> Any:
    return attempt(f"a file tool with {what}", path, stopped_by=stopped_by)


PATHS = [
    path_that("the agent's own directory", "/.oxydra/own.txt", PARSED),
    path_that("the host's path of the agent's directory", "@ALICE@/.oxydra/own.txt", PARSED),
    path_that("the host's path of a file beside the workspaces", "@ROOT@/host-secret.txt", PARSED),
    path_that("the host's path of another user", "@BOB@/shared/notes.txt", PARSED),
    path_that("another user's name as a root", "/bob/shared/notes.txt", PARSED),
    path_that("two slashes at the beginning", "//.oxydra/own.txt", PARSED),
    path_that("a root in capitals", "/SHARED/../.oxydra/own.txt", PARSED),
    path_that("a relative path", ".oxydra/own.txt", PARSED),
    path_that("a relative path upwards", "../.oxydra/own.txt", PARSED),
    path_that("a home", "~/.oxydra/own.txt", PARSED),
    path_that("a URL", "file://@ALICE@/.oxydra/own.txt", PARSED),
    path_that("the root of its own process", "/proc/self/root@ALICE@/.oxydra/own.txt", PARSED),
    path_that("the directory of its own process", "/proc/self/cwd/.oxydra/own.txt", PARSED),
    path_that("its own environment", "/proc/self/environ", PARSED),
    path_that("its own memory", "/proc/self/mem", PARSED),
    path_that("the standard input on which its secrets came", "/dev/stdin", PARSED),
    path_that("a descriptor by its number", "/proc/self/fd/0", PARSED),
    path_that("a socket", "/ipc/agent.sock", PARSED),
    path_that("a log", "/logs/agent/guest.log", PARSED),
    path_that("NUL before the way out", "/shared/x\0/../../.oxydra/own.txt", PARSED),
    path_that("`..` below /shared", "/shared/../.oxydra/own.txt", BENEATH),
    path_that("`..` below /tmp", "/tmp/../.oxydra/own.txt", BENEATH),
    path_that("`..` below /vault", "/vault/../.oxydra/own.txt", BENEATH),
    path_that("`..` behind `.`", "/shared/././../.oxydra/own.txt", BENEATH),
    path_that("`..` behind empty names", "/shared////..//.oxydra/own.txt", BENEATH),
    path_that("`..` behind what is not there", "/shared/none/../../.oxydra/own.txt", BENEATH),
    path_that("`..` to another user", "/shared/../../bob/shared/notes.txt", BENEATH),
    path_that("`..` to the host", "/shared/../../../host-secret.txt", BENEATH),
    path_that("a hundred `..`", f"/shared{'/..' * 100}@ALICE@/.oxydra/own.txt", BENEATH),
    path_that("the host's path below a root", "/shared/@ALICE@/.oxydra/own.txt", BENEATH),
    path_that("`..` in percent signs", "/shared/%2e%2e/.oxydra/own.txt", LITERAL),
    path_that("`..` in percent signs twice", "/shared/%252e%252e/.oxydra/own.txt", LITERAL),
    path_that("slashes in percent signs", "/shared/..%2f.oxydra%2fown.txt", LITERAL),
    path_that("full-width letters", "/shared/．．/.oxydra/own.txt", LITERAL),
    path_that("a full-width slash", "/shared/..／.oxydra／own.txt", LITERAL),
    path_that("two dots in one letter", "/shared/‥/.oxydra/own.txt", LITERAL),
    path_that("backslashes", "/shared/..\\.oxydra\\own.txt", LITERAL),
    path_that("letters that nobody sees", "/shared/.\u200b./.oxydra/own.txt", LITERAL),
    path_that("a variable of the shell", "/shared/$OLDPWD/../.oxydra/own.txt", BENEATH),
    path_that("a pattern", "/shared/../.oxyd*/*", BENEATH),
    path_that("a line break", "/shared/\n/../../.oxydra/own.txt", BENEATH),
]
READING: list[tuple[str, dict[str, Any]]] = [
    ("file_read", {}),
    ("file_list", {}),
    ("file_search", {"query": "mark"}),
]
WRITING: list[tuple[str, dict[str, Any]]] = [
    ("file_edit", {"old": "mark", "new": "gone"}),
    ("file_delete", {}),
    ("file_write", {"content": "overwritten"}),
    ("file_write", {"content": "overwritten", "create_parents": True}),
    ("file_delete", {}),
]


def outside(place: TwoHosts) -> dict[str, bytes | list[str]]:
    """What no file tool may change: files that are worth it, and what lies beside them."""
    alice, bob = place.alice.workspace, place.bob.workspace
    files = (
        *(alice / ".oxydra/own.txt", alice / "vault/deed.txt"),
        *(bob / "shared/notes.txt", place.root / "host-secret.txt"),
    )
    directories = (place.root, alice.parent, alice, alice / "vault", bob, bob / "shared")
    return {
        **{str(path): path.read_bytes() for path in files},
        **{str(path): sorted(os.listdir(path)) for path in directories},
    }


async def clear(place: TwoHosts) -> None:
    await place.attempt(Attempt("clear", "find /shared -mindepth 1 -delete"))


@pytest.mark.parametrize("path", PATHS)
async def test_no_spelling_of_a_path_leads_out(place: TwoHosts, path: str) -> None:
    path, before = place.filled(path), outside(place)
    for tool, more in READING:
        reply = await place.call(tool, path=path, **more)
        assert reply.is_error, reply.text
        denied(place, reply.text)
    for tool, more in WRITING:
        denied(place, await place.tool(tool, path=path, **more))
    assert outside(place) == before
    await clear(place)


async def test_what_lies_in_a_root_is_read_and_changed(place: TwoHosts) -> None:
    """So that the others are refused for where they lead."""
    for tool, more in (WRITING[3], READING[0], READING[2], WRITING[4]):
        reply = await place.call(tool, path="/shared/./made/own.txt", **more)
        assert not reply.is_error, reply.text
    await clear(place)


def directory_that(what: str, path: str) -> Any:
    return attempt(
        f"a command that is to run in {what}",
        path,
        stopped_by="a command's directory is resolved beneath /shared and /tmp by the daemon",
    )


DIRECTORIES = [
    directory_that("the agent's own directory", "/.oxydra"),
    directory_that("the vault", "/vault"),
    directory_that("the daemon's own directory", "/ipc"),
    directory_that("a directory above its roots", "/shared/../.."),
    directory_that("the host's path", "@ALICE@/.oxydra"),
    directory_that("another process's root", "/proc/1/root"),
    directory_that("a descriptor that a runtime has left open", "/proc/self/fd/8"),
    directory_that("a relative directory", "../.oxydra"),
]


@pytest.mark.parametrize("path", DIRECTORIES)
async def test_no_command_runs_elsewhere(place: TwoHosts, path: str) -> None:
    look = "pwd; cat own.txt deed.txt memory.db; ls -a; echo made > made"
    reply = await place.call("shell_exec", command=look, cwd=place.filled(path))
    assert reply.is_error, reply.text
    denied(place, reply.text)


async def note_of(place: TwoHosts, user: str) -> gateway_pb2.Note:
    found = {"alice": place.alice, "bob": place.bob}[user]
    request = gateway_pb2.SearchNotesRequest(query=found.secrets["memory"], top_k=1)
    (note,) = (await found.gateway.SearchNotes(request)).notes
    return note


APART = "each user's notes lie in a database of their own, and each query carries its user"
BOUND = "values are bound to a statement, never written into it"


def call_that(
    what: str, tool: str, stopped_by: str = APART, *, answered: bool = False, **arguments: Any
) -> Any:
    """`answered`: the call is harmless as it is read, and not refused."""
    return attempt(f"a memory tool with {what}", (tool, arguments, answered), stopped_by=stopped_by)


CALLS = [
    call_that(
        "the id of another user's note, to change it",
        "memory_update",
        note_id="@NOTE@",
        content="mine",
    ),
    call_that("the id of another user's note, to delete it", "memory_delete", note_id="@NOTE@"),
    call_that("another user's text as the query", "memory_search", answered=True, query="@TEXT@"),
    call_that(
        "another user as an argument",
        "memory_search",
        "a field that a tool does not have is refused",
        query="note",
        user_id="bob",
    ),
    call_that(
        "another user's notes as a tag",
        "memory_search",
        answered=True,
        query="note",
        tags=["memory:bob"],
    ),
    call_that(
        "another user as the origin",
        "memory_save",
        "the origin of a note is the turn's, not an argument",
        content="said by bob",
        origin={"user": "bob"},
    ),
    call_that(
        "SQL in the query",
        "memory_search",
        BOUND,
        answered=True,
        query="x' UNION SELECT content FROM notes; --",
    ),
    call_that("SQL as the id", "memory_delete", BOUND, note_id="' OR '1'='1"),
    call_that("a pattern as the id", "memory_delete", BOUND, note_id="note-%"),
    call_that(
        "SQL as a tag", "memory_search", BOUND, answered=True, query="note", tags=["') OR 1=1 --"]
    ),
    call_that(
        "operators of the index in the query",
        "memory_search",
        "the words of a query are quoted for the index",
        answered=True,
        query='session:memory* OR NEAR("note" "mark", 5) -^"',
    ),
]


@pytest.mark.parametrize("call", CALLS)
async def test_no_memory_tool_reaches_another_user(
    place: TwoHosts, call: tuple[str, dict[str, Any], bool]
) -> None:
    mine, theirs = await note_of(place, "alice"), await note_of(place, "bob")
    tool, arguments, answered = call
    known = {"@NOTE@": theirs.note_id, "@TEXT@": theirs.text}
    given = {
        name: known.get(value, value) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    reply = await place.call(tool, **given)
    assert reply.is_error != answered, reply.text
    assert not [name for name in place.leaks(reply.text) if name.startswith("bob's")]
    assert await note_of(place, "alice") == mine
    assert await note_of(place, "bob") == theirs
