"""What every way to a shell must do, whatever lies between caller and command."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio
from wire.errors import Code, WireError
from wire.limits import COMMAND_MAX_CHARS
from wire.v1 import shell_pb2

from tests.support.guests.shell_backends import BACKENDS, CANARY, WAIT, Backend, Guest

GONE_WITHIN_S = 60
"""A guard against hanging, not a measure."""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=made.marks) for name, made in sorted(BACKENDS.items())],
)
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param].enter


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(backend: Backend) -> AsyncIterator[Guest]:
    """One guest for all tests that need no limits of their own."""
    async with backend() as guest:
        yield guest


@pytest_asyncio.fixture(loop_scope="module")
async def guest(running: Guest) -> AsyncIterator[Guest]:
    yield running
    await running.clear()


def code_of(raised: pytest.ExceptionInfo[WireError]) -> Code:
    return raised.value.code


async def test_a_command_gets_more_time(guest: Guest) -> None:
    await guest.start("a", "sleep 1.5; echo done", timeout_ms=1_000)
    await guest.api.call("Extend", shell_pb2.ExtendExecRequest(exec_id="a", by_ms=60_000))
    ran = await guest.collect("a")
    assert (ran.stdout, ran.exit.timed_out) == (b"done\n", False)
    await guest.api.call("Extend", shell_pb2.ExtendExecRequest(exec_id="a", by_ms=1))
    for exec_id, by_ms, code in (
        ("none", 1_000, Code.NOT_FOUND),
        ("a", 0, Code.INVALID_ARGUMENT),
        ("a", 60_001, Code.INVALID_ARGUMENT),
    ):
        request = shell_pb2.ExtendExecRequest(exec_id=exec_id, by_ms=by_ms)
        with pytest.raises(WireError) as raised:
            await guest.api.call("Extend", request)
        assert code_of(raised) is code


async def test_a_command_in_the_background_is_read_as_a_ring(guest: Guest) -> None:
    """Both streams are in one, of which the newest 8 MiB stay, at offsets that count all."""
    await guest.start("a", f"echo one; echo two >&2; {WAIT} seq 2000000; echo end", background=True)
    async with asyncio.timeout(GONE_WITHIN_S):
        while (there := await read(guest, "a", 0)).total < len("one\ntwo\n"):
            await asyncio.sleep(0.01)
    assert (there.output.data, there.HasField("exit")) == (b"one\ntwo\n", False)
    assert (await read(guest, "a", 99)).output == shell_pb2.OutputChunk(offset=8)
    guest.let_go()
    ended = await guest.api.call("Wait", shell_pb2.WaitExecRequest(exec_id="a"))
    whole = b"one\ntwo\n" + b"".join(b"%d\n" % each for each in range(1, 2_000_001)) + b"end\n"
    there = await read(guest, "a", 0)
    assert (there.exit, there.total) == (ended, len(whole))
    assert there.output.offset == len(whole) - 8 * 1024 * 1024
    kept, at = b"", there.output.offset
    while at < there.total:
        piece = (await read(guest, "a", at)).output
        assert piece.offset == at
        kept, at = kept + piece.data, at + len(piece.data)
    assert kept == whole[-len(kept) :]
    with pytest.raises(WireError, match="open_stdin or probe is given too"):
        await guest.start("b", "true", background=True, open_stdin=True)


async def test_what_runs_in_the_background_ends_with_all_it_has_started(guest: Guest) -> None:
    await guest.start(
        "a", "(setsid sleep 100 & echo $! > pid); echo up; sleep 100", background=True
    )
    pid = await guest.appears("pid")
    assert guest.alive(pid)
    await guest.cancel("a")
    assert not guest.alive(pid)
    await guest.start("b", "echo up; sleep 100", background=True, timeout_ms=300)
    ended = await guest.api.call("Wait", shell_pb2.WaitExecRequest(exec_id="b"))
    assert (ended.timed_out, (await read(guest, "b", 0)).output.data) == (True, b"up\n")


async def test_what_a_command_leaves_behind_is_said(guest: Guest) -> None:
    assert (await guest.run("a", "sleep 100 >/dev/null 2>&1 & true")).exit.left_behind
    assert not (await guest.run("b", "true & true")).exit.left_behind


async def read(guest: Guest, exec_id: str, offset: int) -> shell_pb2.ReadExecReply:
    request = shell_pb2.ReadExecRequest(exec_id=exec_id, offset=offset, limit=2**20)
    reply: shell_pb2.ReadExecReply = await guest.api.call("Read", request)
    return reply


async def test_one_call_starts_a_command_once_and_reads_it(guest: Guest) -> None:
    first = await guest.run("a", "echo x | tee -a ran")
    again = await guest.run("a", "echo x | tee -a ran")
    assert (first.stdout, first.exit) == (again.stdout, again.exit) == (b"x\n", again.exit)
    assert (guest.shared / "ran").read_text() == "x\n"
    with pytest.raises(WireError) as raised:
        await guest.run("a", "echo y")
    assert code_of(raised) is Code.CONFLICT
    await guest.start("b", WAIT + "echo y")
    reading = asyncio.create_task(guest.run("b", WAIT + "echo y"))
    guest.let_go()
    assert (await reading).stdout == b"y\n"


async def test_plain_words_do_as_in_a_shell(guest: Guest) -> None:
    (guest.shared / "sub").mkdir()
    (guest.shared / "sub/file").touch()
    assert (await guest.run("a", "ls -1 .", cwd="/shared/sub")).stdout == b"file\n"
    ran = await guest.run("b", "ls no-such-file")
    assert (ran.stdout, ran.exit.exit_code) == (b"", 2)
    assert ran.stderr.startswith(b"ls: cannot access")
    ran = await guest.run("c", "no-such-program a b")
    assert ran.exit.exit_code == 127
    assert b"not found" in ran.stderr
    assert (await guest.run("d", "cat -", stdin=b"given")).stdout == b"given"
    told = await guest.run("e", "printenv PWD", cwd="/shared/sub")
    assert told.stdout == (await guest.run("f", "pwd", cwd="/shared/sub")).stdout
    assert (await guest.run("g", "ls", environment={"PATH": "/none"})).exit.exit_code == 127


async def test_a_program_is_executed_without_a_shell(guest: Guest) -> None:
    words = ["$HOME", "*", "$(touch ran)", "a b", "'", ""]
    ran = await guest.run("a", "", argv=["printf", "%s|", *words])
    assert (ran.exit.exit_code, ran.stdout) == (0, "".join(f"{word}|" for word in words).encode())
    subscript = ["test", "-v", "a[$(touch ran)]"]
    assert (await guest.run("b", "", argv=subscript)).exit.exit_code != 0
    for number, name in enumerate(("cd", "no-such-program", "ran;ls")):
        ran = await guest.run(f"c{number}", "", argv=[name, "/"])
        assert ran.exit.exit_code == 126
        assert f"{name}: no such program; this runs without a shell" in ran.stderr.decode()
    assert not (guest.shared / "ran").exists()
    for command, argv in (("ls", ["ls"]), ("", [""]), ("", ["a\0b"]), ("", [])):
        with pytest.raises(WireError) as raised:
            await guest.start("d", command, argv=argv)
        assert code_of(raised) is Code.INVALID_ARGUMENT


class TestStreams:
    async def test_both_streams_and_the_exit_code_come_apart(self, guest: Guest) -> None:
        ran = await guest.run("a", "echo out; echo err >&2; exit 7")
        assert (ran.stdout, ran.stderr, ran.exit.exit_code) == (b"out\n", b"err\n", 7)
        assert not ran.exit.timed_out
        assert not ran.exit.cancelled

    async def test_output_is_bytes(self, guest: Guest) -> None:
        ran = await guest.run("a", r"printf '\xff\x00\xfe\n\xc3'")
        assert ran.stdout == b"\xff\x00\xfe\n\xc3"

    async def test_output_arrives_while_the_command_runs(self, guest: Guest) -> None:
        reading = asyncio.Event()
        await guest.start("a", f"echo first; {WAIT} echo second")
        task = asyncio.create_task(guest.collect("a", reading=reading))
        await reading.wait()
        guest.let_go()
        assert (await task).stdout == b"first\nsecond\n"

    async def test_exit_codes_are_those_of_a_shell(self, guest: Guest) -> None:
        expected = {
            "true": 0,
            "false": 1,
            "exit 255": 255,
            "kill -TERM $$": 143,
            "kill -KILL $$": 137,
            "no-such-command": 127,
            "/usr": 126,
            "if then": 2,
        }
        seen = {}
        for number, command in enumerate(expected):
            seen[command] = (await guest.run(f"a{number}", command)).exit.exit_code
        assert seen == expected

    async def test_a_reader_resumes_at_any_offset(self, guest: Guest) -> None:
        await guest.run("a", "printf 0123456789; printf abcdef >&2")
        for offset in (0, 4, 10):
            ran = await guest.collect("a", offset, min(offset, 6))
            assert ran.stdout == b"0123456789"[offset:]
            assert ran.stderr == b"abcdef"[min(offset, 6) :]

    async def test_an_offset_beyond_what_was_written_is_refused(self, guest: Guest) -> None:
        await guest.run("a", "printf 0123456789")
        with pytest.raises(WireError, match="stdout_offset: 11") as raised:
            await guest.collect("a", 11)
        assert code_of(raised) is Code.INVALID_ARGUMENT
        with pytest.raises(WireError, match="stderr_offset: 1"):
            await guest.collect("a", 0, 1)

    async def test_two_readers_see_the_same(self, guest: Guest) -> None:
        await guest.start("a", "for i in 1 2 3 4 5; do echo $i; sleep 0.01; done")
        one, two = await asyncio.gather(guest.collect("a"), guest.collect("a"))
        assert one.stdout == two.stdout == b"1\n2\n3\n4\n5\n"

    async def test_without_a_reader_the_oldest_bytes_are_dropped_and_counted(
        self, backend: Backend
    ) -> None:
        async with backend(buffer_bytes=1000) as guest:
            await guest.start("a", f"seq 100000; touch done-writing; {WAIT}")
            await guest.run("b", "while [ ! -e done-writing ]; do sleep 0.01; done")
            guest.let_go()
            ran = await guest.collect("a")
            whole = b"".join(b"%d\n" % number for number in range(1, 100001))
            assert ran.stdout == whole[-len(ran.stdout) :]
            assert 1000 <= len(ran.stdout) <= 1000 + 65536
            assert ran.skipped == len(whole) - len(ran.stdout)

    async def test_a_reader_loses_nothing_however_small_the_buffer(self, backend: Backend) -> None:
        async with backend(buffer_bytes=1000) as guest:
            await guest.start("a", f"echo first; {WAIT} seq 200000; seq 1000 >&2")
            reading = asyncio.Event()
            task = asyncio.create_task(guest.collect("a", reading=reading))
            await reading.wait()
            guest.let_go()
            ran = await task
            assert ran.skipped == 0
            assert ran.stdout == b"first\n" + b"".join(
                b"%d\n" % number for number in range(1, 200001)
            )
            assert len(ran.stderr) == 3893

    async def test_a_reader_that_leaves_frees_the_command(self, backend: Backend) -> None:
        async with backend(buffer_bytes=1000) as guest:
            await guest.start("a", "seq 1000000; echo end >&2")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read_one_and_stall(guest, "a"), 0.3)
            ran = await guest.collect("a", stderr_offset=0)
            assert ran.stderr == b"end\n"
            assert ran.exit.exit_code == 0


async def read_one_and_stall(guest: Guest, exec_id: str) -> None:
    async with aclosing(
        guest.api.stream("Output", shell_pb2.ExecOutputRequest(exec_id=exec_id))
    ) as events:
        await anext(events)
        await asyncio.sleep(GONE_WITHIN_S)


class TestDirectory:
    async def test_commands_start_in_shared(self, guest: Guest) -> None:
        ran = await guest.run("a", "pwd -P; echo x > made-here")
        assert ran.stdout.decode().strip() == str(guest.seen_shared)
        assert (guest.shared / "made-here").exists()

    async def test_any_directory_below_the_roots_will_do(self, guest: Guest) -> None:
        (guest.shared / "a b" / "ü").mkdir(parents=True)
        (guest.shared / "link").symlink_to("a b")
        for number, (cwd, real) in enumerate(
            [
                ("/tmp", guest.seen_tmp),
                ("/shared/", guest.seen_shared),
                ("/shared/a b/ü", guest.seen_shared / "a b" / "ü"),
                ("/shared/a b/../link/ü/.", guest.seen_shared / "a b" / "ü"),
            ]
        ):
            ran = await guest.run(f"a{number}", "pwd -P", cwd=cwd)
            assert ran.stdout.decode().strip() == str(real)

    async def test_any_other_is_refused_and_nothing_runs(self, guest: Guest) -> None:
        (guest.shared / "up").symlink_to("../..")
        (guest.shared / "etc").symlink_to("/etc")
        (guest.shared / "other").symlink_to(guest.tmp)
        (guest.shared / "file").write_text("")
        for cwd in (
            *("/", "/etc", "/sharedx", "/vault", "shared", "//shared"),
            *("/shared/../etc", "/shared/../../../../../etc", "/shared/up", "/shared/etc"),
            *("/shared/other", "/shared/missing", "/shared/file", "/shared/\0"),
            "/shared/" + "x" * 5000,
        ):
            with pytest.raises(WireError, match="cwd: ") as raised:
                await guest.start("a", "touch ran", cwd=cwd)
            assert code_of(raised) is Code.INVALID_ARGUMENT
            assert "/shared, /tmp or /projects/NAME" in raised.value.details
        with pytest.raises(WireError) as raised:
            await guest.collect("a")
        assert code_of(raised) is Code.NOT_FOUND


class TestEnvironment:
    async def test_it_holds_the_minimum(self, guest: Guest) -> None:
        ran = await guest.run("a", "env -0")
        environment = dict(line.split("=", 1) for line in ran.stdout.decode().split("\0") if line)
        for set_by_the_shell in ("PWD", "SHLVL", "_", "OLDPWD"):
            environment.pop(set_by_the_shell, None)
        assert environment == {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(guest.seen_tmp),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "npm_config_cache": "/cache/npm",
            "UV_CACHE_DIR": "/cache/uv",
            "PIP_CACHE_DIR": "/cache/pip",
            "UV_PYTHON_DOWNLOADS": "never",
        }

    async def test_nothing_of_the_daemon_s_own_leaks(self, guest: Guest) -> None:
        ran = await guest.run("a", "env; cat /proc/self/environ /proc/$PPID/environ")
        assert CANARY.encode() not in ran.stdout + ran.stderr

    async def test_no_descriptor_of_the_daemon_leaks(self, guest: Guest) -> None:
        ran = await guest.run("a", "ls /proc/$$/fd; exit")
        assert ran.stdout.split() == [b"0", b"1", b"2"]


class TestEnding:
    """However a command ends, nothing of its tree is left."""

    async def test_a_timeout_ends_children_of_every_kind(self, guest: Guest) -> None:
        script = """
            sleep 1001 & echo $! >> pids
            (sleep 1002 & echo $! >> pids)
            setsid nohup sleep 1003 & echo $! >> pids
            (setsid nohup sh -c 'env -i sleep 1004 & echo $! >> pids; exec sleep 1005' &)
            setsid sh -c '(trap "" TERM; echo $$ >> pids; while :; do sleep 0.1; done)' &
            python3 -c '
import os, signal, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
os.chdir("/")
open("PIDS", "a").write(f"{os.getpid()}\\n")
time.sleep(1000)'
            echo ready
            sleep 1006
        """.replace("PIDS", str(guest.seen_shared / "pids"))
        ran = await guest.run("a", script, timeout_ms=3000)
        assert ran.exit.timed_out
        assert not ran.exit.cancelled
        assert ran.stdout == b"ready\n"
        pids = (guest.shared / "pids").read_text().split()
        assert len(pids) == 6
        assert [pid for pid in pids if guest.alive(pid)] == []

    async def test_what_ignores_sigterm_is_killed(self, guest: Guest) -> None:
        script = "trap '' TERM INT HUP; echo $$ > pid; while :; do sleep 0.1; done"
        ran = await guest.run("a", script, timeout_ms=200)
        assert ran.exit.timed_out
        assert ran.exit.exit_code == 137
        assert not guest.alive((guest.shared / "pid").read_text().strip())

    async def test_what_heeds_sigterm_may_tidy_up(self, guest: Guest) -> None:
        await guest.start("a", "trap 'echo tidy; exit 9' TERM; sleep 1000 & echo set > trap; wait")
        await guest.appears("trap")
        await guest.cancel("a")
        ran = await guest.collect("a")
        assert ran.stdout == b"tidy\n"
        assert (ran.exit.cancelled, ran.exit.exit_code) == (True, 9)

    async def test_a_stopped_tree_ends_too(self, guest: Guest) -> None:
        ran = await guest.run("a", "kill -STOP $$", timeout_ms=200)
        assert ran.exit.timed_out

    async def test_cancel_ends_the_tree_before_it_answers(self, guest: Guest) -> None:
        await guest.start("a", "(setsid sleep 1000 & echo $! > pid); while :; do :; done")
        pid = await guest.appears("pid")
        await guest.cancel("a")
        assert not guest.alive(pid)
        ran = await guest.collect("a")
        assert ran.exit.cancelled
        assert not ran.exit.timed_out
        assert ran.exit.exit_code in (137, 143)
        await guest.cancel("a")
        assert (await guest.collect("a")).exit == ran.exit

    async def test_cancel_at_once(self, guest: Guest) -> None:
        await guest.start("a", "sleep 1000")
        await guest.cancel("a")
        assert (await guest.collect("a")).exit.cancelled

    async def test_what_is_left_in_the_background_ends_with_the_command(self, guest: Guest) -> None:
        ran = await guest.run("a", "sleep 1000 & echo $! > pid; (setsid sleep 1000 &); echo done")
        assert (ran.stdout, ran.exit.exit_code) == (b"done\n", 0)
        assert not guest.alive((guest.shared / "pid").read_text().strip())

    async def test_a_process_substitution_may_finish_writing(self, guest: Guest) -> None:
        ran = await guest.run("a", "echo late > >(sleep 0.05; cat)")
        assert ran.stdout == b"late\n"

    async def test_a_timeout_beyond_the_maximum_is_refused(self, backend: Backend) -> None:
        async with backend(timeout_default=0.3, timeout_max=2.0) as guest:
            with pytest.raises(WireError, match="timeout_ms: 2001") as raised:
                await guest.start("a", "true", timeout_ms=2001)
            assert code_of(raised) is Code.INVALID_ARGUMENT
            assert "2000" in raised.value.details
            assert (await guest.run("b", "sleep 1000")).exit.timed_out


class TestIds:
    async def test_starting_again_answers_for_the_same_command(self, guest: Guest) -> None:
        for _ in range(2):
            await guest.start("a", "echo x >> runs; sleep 0.05")
        await guest.collect("a")
        await guest.run("a", "echo x >> runs; sleep 0.05")
        assert (guest.shared / "runs").read_text() == "x\n"

    async def test_the_same_id_for_something_else_is_a_conflict(self, guest: Guest) -> None:
        await guest.run("a", "echo 1")
        others: list[dict[str, Any]] = [
            {"command": "echo 2"},
            {"cwd": "/tmp"},
            {"stdin": b"x"},
            {"timeout_ms": 5},
        ]
        for other in others:
            with pytest.raises(WireError, match="exec_id: a is taken") as raised:
                await guest.start("a", **{"command": "echo 1", **other})
            assert code_of(raised) is Code.CONFLICT

    async def test_odd_ids_are_refused_everywhere(self, guest: Guest) -> None:
        for odd in ("", "a b", "ü", "a/b", "../a", "a\0", "a\n", "x" * 65, "$(id)", "a;b", "*"):
            for call in (
                guest.start(odd, "true"),
                guest.collect(odd),
                guest.cancel(odd),
                guest.release(odd),
            ):
                with pytest.raises(WireError, match=r"exec_id: .* is not an id") as raised:
                    await call
                assert code_of(raised) is Code.INVALID_ARGUMENT

    async def test_every_allowed_character_works(self, guest: Guest) -> None:
        exec_id = "azAZ09._-" + "x" * 55
        assert (await guest.run(exec_id, "echo $((1+1))")).stdout == b"2\n"

    async def test_unknown_ids_are_not_found(self, guest: Guest) -> None:
        for call in (guest.collect("a"), guest.cancel("a")):
            with pytest.raises(WireError, match="no command a") as raised:
                await call
            assert code_of(raised) is Code.NOT_FOUND

    async def test_release_forgets_and_frees_the_id(self, guest: Guest) -> None:
        await guest.start("a", "sleep 1000")
        with pytest.raises(WireError, match="command a is running") as raised:
            await guest.release("a")
        assert code_of(raised) is Code.FAILED_PRECONDITION
        await guest.cancel("a")
        await guest.release("a")
        await guest.release("a")
        with pytest.raises(WireError, match="no command a"):
            await guest.collect("a")
        assert (await guest.run("a", "echo anew")).stdout == b"anew\n"

    async def test_a_command_that_cannot_be_is_refused(self, guest: Guest) -> None:
        for command in ("", "x" * (COMMAND_MAX_CHARS + 1), "a\0b"):
            with pytest.raises(WireError, match="command: ") as raised:
                await guest.start("a", command)
            assert code_of(raised) is Code.INVALID_ARGUMENT
            assert str(COMMAND_MAX_CHARS) in raised.value.details

    async def test_the_longest_command_works_in_any_script(self, guest: Guest) -> None:
        tail = "; echo end"
        command = ": " + "\U0001f600" * (COMMAND_MAX_CHARS - 2 - len(tail)) + tail
        assert len(command) == COMMAND_MAX_CHARS
        assert (await guest.run("a", command)).stdout == b"end\n"


class TestStdin:
    async def test_it_is_empty_where_none_is_sent(self, guest: Guest) -> None:
        ran = await guest.run("a", "cat; readlink /proc/self/fd/0")
        assert ran.stdout == b"/dev/null\n"

    async def test_all_of_it_arrives_and_then_its_end(self, guest: Guest) -> None:
        data, reading = os.urandom(1024 * 1024), asyncio.Event()
        await guest.start("a", f"echo; {WAIT} cat", stdin=data)
        collecting = asyncio.create_task(guest.collect("a", reading=reading))
        await reading.wait()
        guest.let_go()
        assert (await collecting).stdout == b"\n" + data

    async def test_too_much_at_the_start_is_refused(self, guest: Guest) -> None:
        with pytest.raises(WireError, match="stdin: 1048577 bytes") as raised:
            await guest.start("a", "cat", stdin=b"x" * (1024 * 1024 + 1))
        assert code_of(raised) is Code.INVALID_ARGUMENT


class TestOpenStdin:
    async def test_what_is_written_arrives_as_it_comes_and_then_its_end(self, guest: Guest) -> None:
        await guest.start("a", "read a; echo got $a; cat; echo end", open_stdin=True)
        reading = asyncio.Event()
        reader = asyncio.create_task(guest.collect("a", reading=reading))
        assert await guest.input("a", 0, b"one\n") == 4
        await reading.wait()
        assert await guest.input("a", 4, b"two\n") == 8
        assert await guest.input("a", 2, b"e\ntwo\nthree\n", close=True) == 14
        ran = await reader
        assert (ran.stdout, ran.exit.exit_code) == (b"got one\ntwo\nthree\nend\n", 0)

    async def test_a_write_waits_for_a_command_that_does_not_read(self, guest: Guest) -> None:
        await guest.start("a", f"echo up; {WAIT} wc -c", open_stdin=True)
        reading = asyncio.Event()
        reader = asyncio.create_task(guest.collect("a", reading=reading))
        await reading.wait()
        data = b"x" * 500_000
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(guest.input("a", 0, data), 0.3)
        guest.let_go()
        assert await guest.input("a", 0, data, close=True) == len(data)
        assert (await reader).stdout == b"up\n500000\n"

    async def test_what_cannot_be_written_is_refused(self, guest: Guest) -> None:
        await guest.start("plain", WAIT)
        await guest.start("a", WAIT, open_stdin=True)
        for exec_id, offset, said in (("plain", 0, "is not open"), ("a", 1, "offset: 1 is beyond")):
            with pytest.raises(WireError, match=said):
                await guest.input(exec_id, offset, b"x")
        await guest.input("a", 0, b"", close=True)
        with pytest.raises(WireError, match="standard input is closed"):
            await guest.input("a", 0, b"x")
        with pytest.raises(WireError, match="open_stdin: stdin or probe is given too"):
            await guest.start("b", "cat", stdin=b"x", open_stdin=True)
        await guest.run("ended", "true", open_stdin=True)
        with pytest.raises(WireError, match="standard input is closed"):
            await guest.input("ended", 0, b"x")

    async def test_it_has_no_time_limit_unless_one_is_asked_for(self, backend: Backend) -> None:
        async with backend(timeout_default=1) as guest:
            await guest.start("a", "sleep 1.5; echo lives", open_stdin=True)
            await guest.start("b", "sleep 100", open_stdin=True, timeout_ms=200)
            one, two = await asyncio.gather(guest.collect("a"), guest.collect("b"))
            assert (one.stdout, one.exit.timed_out) == (b"lives\n", False)
            assert two.exit.timed_out


async def test_a_command_has_the_variables_that_it_is_given(guest: Guest) -> None:
    ran = await guest.run("a", "echo $A-$B-$LANG", environment={"A": "x y", "B": "\u00fc"})
    assert ran.stdout.decode() == "x y-\u00fc-C.UTF-8\n"
    for name, value in (("1", "x"), ("A=B", "x"), ("A", "\0"), ("A", "x" * 33_000)):
        with pytest.raises(WireError, match=r"^environment: "):
            await guest.start("b", "env", environment={name: value})


class TestManyAtOnce:
    async def test_they_do_not_wait_for_each_other_nor_mix(self, guest: Guest) -> None:
        await guest.start("last", f"{WAIT} echo done")
        runs = [
            guest.run(f"a{i}", f"for n in 1 2 3; do echo {i}; sleep 0.02; done") for i in range(20)
        ]
        for i, ran in enumerate(await asyncio.gather(*runs)):
            assert ran.stdout == f"{i}\n".encode() * 3
        guest.let_go()
        assert (await guest.collect("last")).stdout == b"done\n"

    async def test_one_too_many_is_refused_until_one_ends(self, backend: Backend) -> None:
        async with backend(commands_max=3) as guest:
            for i in range(3):
                await guest.start(f"a{i}", "sleep 1000")
            with pytest.raises(WireError, match="3 commands are running") as raised:
                await guest.start("a3", "true")
            assert code_of(raised) is Code.RESOURCE_EXHAUSTED
            await guest.start("a0", "sleep 1000")
            await guest.cancel("a0")
            assert (await guest.run("a3", "echo in")).stdout == b"in\n"


async def test_durations_are_measured(guest: Guest) -> None:
    began = time.monotonic()
    ran = await guest.run("a", "sleep 0.1")
    assert 100 <= ran.exit.duration_ms <= (time.monotonic() - began) * 1000 + 1
