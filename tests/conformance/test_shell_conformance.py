"""What every way to a shell must do, whatever lies between caller and command."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from wire.errors import Code, WireError
from wire.limits import COMMAND_MAX_CHARS
from wire.v1 import shell_pb2

from tests.support.shell_backends import BACKENDS, CANARY, Backend, Guest

GONE_WITHIN_S = 60
"""A guard against hanging, not a measure."""


@pytest.fixture(
    params=[pytest.param(name, marks=made.marks) for name, made in sorted(BACKENDS.items())]
)
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param].enter


@pytest.fixture
async def guest(backend: Backend) -> AsyncIterator[Guest]:
    async with backend() as guest:
        yield guest


def code_of(raised: pytest.ExceptionInfo[WireError]) -> Code:
    return raised.value.code


class TestStreams:
    async def test_both_streams_and_the_exit_code_come_apart(self, guest: Guest) -> None:
        ran = await guest.run("a", "echo out; echo err >&2; exit 7")
        assert (ran.stdout, ran.stderr, ran.exit.exit_code) == (b"out\n", b"err\n", 7)
        assert (ran.exit.stdout_bytes, ran.exit.stderr_bytes) == (4, 4)
        assert not ran.exit.timed_out
        assert not ran.exit.cancelled

    async def test_output_is_bytes(self, guest: Guest) -> None:
        ran = await guest.run("a", r"printf '\xff\x00\xfe\n\xc3'")
        assert ran.stdout == b"\xff\x00\xfe\n\xc3"

    async def test_output_arrives_while_the_command_runs(self, guest: Guest) -> None:
        await guest.start("a", "echo first; read line; echo $line", keep_stdin_open=True)
        task = asyncio.create_task(guest.collect("a"))
        await asyncio.sleep(0.05)
        await guest.write("a", 0, b"second\n", close=True)
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
            assert ran.exit.stdout_bytes == 10

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
            await guest.start("a", "seq 100000; touch done-writing; read x", keep_stdin_open=True)
            await guest.start("b", "while [ ! -e done-writing ]; do sleep 0.01; done")
            await guest.collect("b")
            await guest.write("a", 0, b"", close=True)
            ran = await guest.collect("a")
            whole = b"".join(b"%d\n" % number for number in range(1, 100001))
            assert ran.stdout == whole[-len(ran.stdout) :]
            assert 1000 <= len(ran.stdout) <= 1000 + 65536
            assert ran.skipped == len(whole) - len(ran.stdout)
            assert ran.exit.stdout_bytes == len(whole)

    async def test_a_reader_loses_nothing_however_small_the_buffer(self, backend: Backend) -> None:
        async with backend(buffer_bytes=1000) as guest:
            command = "echo first; read go; seq 200000; seq 1000 >&2"
            await guest.start("a", command, keep_stdin_open=True)
            reading = asyncio.Event()
            task = asyncio.create_task(guest.collect("a", reading=reading))
            await reading.wait()
            await guest.write("a", 0, b"go\n")
            ran = await task
            assert ran.skipped == 0
            assert ran.stdout == b"first\n" + b"".join(
                b"%d\n" % number for number in range(1, 200001)
            )
            assert len(ran.stderr) == ran.exit.stderr_bytes == 3893

    async def test_a_reader_that_leaves_frees_the_command(self, backend: Backend) -> None:
        async with backend(buffer_bytes=1000) as guest:
            await guest.start("a", "seq 1000000; echo end >&2")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read_one_and_stall(guest, "a"), 0.3)
            ran = await guest.collect("a", stderr_offset=0)
            assert ran.stderr == b"end\n"
            assert ran.exit.exit_code == 0


async def read_one_and_stall(guest: Guest, exec_id: str) -> None:
    async with aclosing(guest.api.output(shell_pb2.ExecOutputRequest(exec_id=exec_id))) as events:
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
            assert "/shared or /tmp" in raised.value.details
        with pytest.raises(WireError) as raised:
            await guest.collect("a")
        assert code_of(raised) is Code.NOT_FOUND


class TestEnvironment:
    async def test_it_holds_the_minimum_and_what_was_asked_for(self, guest: Guest) -> None:
        ran = await guest.run("a", "env -0", environment={"TZ": "UTC", "TERM": "xterm"})
        environment = dict(line.split("=", 1) for line in ran.stdout.decode().split("\0") if line)
        for set_by_the_shell in ("PWD", "SHLVL", "_", "OLDPWD"):
            environment.pop(set_by_the_shell, None)
        assert environment == {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(guest.seen_tmp),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "TZ": "UTC",
        }

    async def test_nothing_of_the_daemon_s_own_leaks(self, guest: Guest) -> None:
        ran = await guest.run("a", "env; cat /proc/self/environ /proc/$PPID/environ")
        assert CANARY.encode() not in ran.stdout + ran.stderr

    async def test_another_name_is_refused_by_name(self, guest: Guest) -> None:
        for name in ("LD_PRELOAD", "PATH", "HOME", "", "a b", "BASH_ENV", "tz"):
            with pytest.raises(WireError, match=f"environment: '{name}' may not be set") as raised:
                await guest.start("a", "true", environment={name: "x"})
            assert code_of(raised) is Code.INVALID_ARGUMENT
            assert "TZ" in raised.value.details

    async def test_a_value_that_cannot_be_is_refused(self, guest: Guest) -> None:
        for value in ("a\0b", "x" * 32769):
            with pytest.raises(WireError, match="environment: the value of TZ") as raised:
                await guest.start("a", "true", environment={"TZ": value})
            assert code_of(raised) is Code.INVALID_ARGUMENT

    async def test_the_operator_may_allow_more(self, backend: Backend) -> None:
        async with backend(environment=frozenset({"MY_NAME"})) as guest:
            ran = await guest.run("a", "echo $MY_NAME", environment={"MY_NAME": "x y"})
            assert ran.stdout == b"x y\n"

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
        script = "trap 'echo tidy; exit 9' TERM; sleep 1000 & wait"
        ran = await guest.run("a", script, timeout_ms=200)
        assert ran.stdout == b"tidy\n"
        assert (ran.exit.timed_out, ran.exit.exit_code) == (True, 9)

    async def test_a_stopped_tree_ends_too(self, guest: Guest) -> None:
        ran = await guest.run("a", "kill -STOP $$", timeout_ms=200)
        assert ran.exit.timed_out

    async def test_cancel_ends_the_tree_before_it_answers(self, guest: Guest) -> None:
        await guest.start("a", "(setsid sleep 1000 & echo $! > pid); while :; do :; done")
        pid = await guest.appears("pid")
        assert await guest.cancel("a")
        assert not guest.alive(pid)
        ran = await guest.collect("a")
        assert ran.exit.cancelled
        assert not ran.exit.timed_out
        assert ran.exit.exit_code in (137, 143)
        assert not await guest.cancel("a")

    async def test_cancel_at_once(self, guest: Guest) -> None:
        await guest.start("a", "sleep 1000")
        assert await guest.cancel("a")
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
        assert not (await guest.start("a", "echo x >> runs; sleep 0.05")).already_known
        assert (await guest.start("a", "echo x >> runs; sleep 0.05")).already_known
        await guest.collect("a")
        assert (await guest.start("a", "echo x >> runs; sleep 0.05")).already_known
        assert (guest.shared / "runs").read_text() == "x\n"

    async def test_the_same_id_for_something_else_is_a_conflict(self, guest: Guest) -> None:
        await guest.run("a", "echo 1")
        others: list[dict[str, Any]] = [
            {"command": "echo 2"},
            {"cwd": "/tmp"},
            {"stdin": b"x"},
            {"timeout_ms": 5},
            {"environment": {"TZ": "UTC"}},
        ]
        for other in others:
            with pytest.raises(WireError, match="exec_id: a is taken") as raised:
                await guest.start("a", **{"command": "echo 1", **other})
            assert code_of(raised) is Code.CONFLICT

    async def test_odd_ids_are_refused_everywhere(self, guest: Guest) -> None:
        for odd in ("", "a b", "ü", "a/b", "../a", "a\0", "a\n", "x" * 65, "$(id)", "a;b", "*"):
            calls = [
                ("exec_id", guest.start(odd, "true")),
                ("exec_id", guest.collect(odd)),
                ("exec_id", guest.write(odd, 0, b"")),
                ("exec_id", guest.cancel(odd)),
                ("exec_id", guest.release(odd)),
                ("session_id", guest.open_session(odd)),
                ("session_id", guest.close_session(odd)),
            ]
            if odd:
                calls.append(("session_id", guest.start("a", "true", session_id=odd)))
            for field, call in calls:
                with pytest.raises(WireError, match=f"{field}: .* is not an id") as raised:
                    await call
                assert code_of(raised) is Code.INVALID_ARGUMENT

    async def test_every_allowed_character_works(self, guest: Guest) -> None:
        exec_id = "azAZ09._-" + "x" * 55
        assert (await guest.run(exec_id, "echo $((1+1))")).stdout == b"2\n"

    async def test_unknown_ids_are_not_found(self, guest: Guest) -> None:
        for call in (guest.collect("a"), guest.write("a", 0, b""), guest.cancel("a")):
            with pytest.raises(WireError, match="no command a") as raised:
                await call
            assert code_of(raised) is Code.NOT_FOUND
        with pytest.raises(WireError, match="no session s") as raised:
            await guest.start("a", "true", session_id="s")
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
        command = (
            "# ".replace("# ", ": ") + "\U0001f600" * (COMMAND_MAX_CHARS - 2 - len(tail)) + tail
        )
        assert len(command) == COMMAND_MAX_CHARS
        assert (await guest.run("a", command)).stdout == b"end\n"
        await guest.open_session("s")
        assert (await guest.run("b", command, session_id="s")).stdout == b"end\n"


class TestStdin:
    async def test_it_is_empty_where_none_is_sent(self, guest: Guest) -> None:
        ran = await guest.run("a", "cat; readlink /proc/self/fd/0")
        assert ran.stdout == b"/dev/null\n"

    async def test_all_of_it_arrives_and_then_its_end(self, guest: Guest) -> None:
        data = bytes(range(256)) * 900  # within the buffer: nobody reads at first
        assert (await guest.run("a", "cat", stdin=data)).stdout == data

    async def test_what_is_repeated_is_not_written_twice(self, guest: Guest) -> None:
        await guest.start("a", "cat", stdin=b"ab", keep_stdin_open=True)
        assert await guest.write("a", 2, b"cd") == 4
        assert await guest.write("a", 2, b"cd") == 4
        assert await guest.write("a", 0, b"abcdef") == 6
        assert await guest.write("a", 1, b"b") == 6
        assert await guest.write("a", 6, b"g", close=True) == 7
        assert await guest.write("a", 6, b"g", close=True) == 7
        assert (await guest.collect("a")).stdout == b"abcdefg"

    async def test_a_hole_is_a_conflict(self, guest: Guest) -> None:
        await guest.start("a", "cat", keep_stdin_open=True)
        with pytest.raises(WireError, match="offset: 3 is beyond the 0 bytes") as raised:
            await guest.write("a", 3, b"x")
        assert code_of(raised) is Code.CONFLICT
        await guest.write("a", 0, b"", close=True)
        assert (await guest.collect("a")).stdout == b""

    async def test_new_bytes_that_nobody_can_read_are_refused(self, guest: Guest) -> None:
        await guest.run("a", "cat", stdin=b"ab")
        assert await guest.write("a", 0, b"ab", close=True) == 2
        with pytest.raises(WireError, match="takes no more: it was closed by the caller") as raised:
            await guest.write("a", 2, b"c")
        assert code_of(raised) is Code.FAILED_PRECONDITION
        await guest.start("b", "true", keep_stdin_open=True)
        await guest.collect("b")
        with pytest.raises(WireError, match="takes no more: the command has ended"):
            await guest.write("b", 0, b"c")

    async def test_a_command_may_stop_reading(self, guest: Guest) -> None:
        await guest.start("a", "exec <&-; sleep 1000", keep_stdin_open=True)
        written, refused = 0, None
        async with asyncio.timeout(GONE_WITHIN_S):
            while refused is None:
                try:
                    written = await guest.write("a", written, b"x" * 1000)
                except WireError as error:
                    refused = error
        assert "the command closed it" in refused.brief
        await guest.cancel("a")

    async def test_a_flood_is_accepted_only_as_it_is_read(self, guest: Guest) -> None:
        data = os.urandom(3 * 1024 * 1024)
        await guest.start("a", "read go < <(sleep 0.3); cat", keep_stdin_open=True)
        first = await guest.write("a", 0, data)
        assert 0 < first < len(data)
        task = asyncio.create_task(guest.collect("a"))
        written = first
        while written < len(data):
            written = await guest.write("a", written, data[written:], close=True)
        assert (await task).stdout == data

    async def test_too_much_at_the_start_is_refused(self, guest: Guest) -> None:
        with pytest.raises(WireError, match="stdin: 1048577 bytes") as raised:
            await guest.start("a", "cat", stdin=b"x" * (1024 * 1024 + 1))
        assert code_of(raised) is Code.INVALID_ARGUMENT


class TestManyAtOnce:
    async def test_they_do_not_wait_for_each_other_nor_mix(self, guest: Guest) -> None:
        await guest.start("last", "read x; echo $x", keep_stdin_open=True)
        runs = [
            guest.run(f"a{i}", f"for n in 1 2 3; do echo {i}; sleep 0.02; done") for i in range(20)
        ]
        for i, ran in enumerate(await asyncio.gather(*runs)):
            assert ran.stdout == f"{i}\n".encode() * 3
        await guest.write("last", 0, b"done\n")
        assert (await guest.collect("last")).stdout == b"done\n"

    async def test_one_too_many_is_refused_until_one_ends(self, backend: Backend) -> None:
        async with backend(commands_max=3) as guest:
            for i in range(3):
                await guest.start(f"a{i}", "sleep 1000")
            assert (await guest.hello()).running == 3
            with pytest.raises(WireError, match="3 commands are running") as raised:
                await guest.start("a3", "true")
            assert code_of(raised) is Code.RESOURCE_EXHAUSTED
            assert (await guest.start("a0", "sleep 1000")).already_known
            await guest.cancel("a0")
            assert (await guest.run("a3", "echo in")).stdout == b"in\n"
            assert (await guest.hello()).running == 2

    async def test_hello_tells_version_and_kernel(self, guest: Guest) -> None:
        hello = await guest.hello()
        with open("/proc/sys/kernel/random/boot_id") as file:
            assert hello.boot_id == file.read().strip()
        assert hello.version
        assert hello.running == 0


class TestSessions:
    async def test_directory_and_environment_stay(self, guest: Guest) -> None:
        (guest.shared / "sub").mkdir()
        assert not await guest.open_session("s", cwd="/tmp", environment={"TZ": "UTC"})
        assert (await guest.run("a", "pwd -P; echo $TZ", session_id="s")).stdout.decode() == (
            f"{guest.seen_tmp}\nUTC\n"
        )
        script = f"cd '{guest.seen_shared}/sub'; export A=$'x\\'\"\\n $y ü'; export TZ=CET; plain=1"
        assert (await guest.run("b", script, session_id="s")).stdout == b""
        ran = await guest.run("c", 'pwd; echo "$A"; echo $TZ; echo "[$plain]"', session_id="s")
        assert ran.stdout.decode() == f"{guest.seen_shared}/sub\nx'\"\n $y ü\nCET\n[]\n"
        ran = await guest.run("d", "cd - > /dev/null; pwd -P; cd - ", session_id="s")
        assert ran.stdout.decode() == f"{guest.seen_tmp}\n{guest.seen_shared}/sub\n"
        assert ran.stderr == b""

    async def test_functions_stay_where_the_shell_is_bash(self, guest: Guest) -> None:
        await guest.open_session("s")
        await guest.run("a", 'greet() { echo "hello $1"; }', session_id="s")
        assert (await guest.run("b", "greet you", session_id="s")).stdout == b"hello you\n"

    async def test_a_command_s_own_directory_and_variables_stay_too(self, guest: Guest) -> None:
        await guest.open_session("s")
        await guest.run("a", "true", session_id="s", cwd="/tmp", environment={"LINES": "5"})
        ran = await guest.run("b", "pwd -P; echo $LINES", session_id="s")
        assert ran.stdout.decode() == f"{guest.seen_tmp}\n5\n"

    async def test_streams_exit_and_stdin_are_exact(self, guest: Guest) -> None:
        await guest.open_session("s")
        ran = await guest.run("a", "cat; echo e >&2; exit 5", session_id="s", stdin=b"in")
        assert (ran.stdout, ran.stderr, ran.exit.exit_code) == (b"in", b"e\n", 5)
        ran = await guest.run("b", "echo $#$1$2", session_id="s")
        assert (ran.stdout, ran.stderr) == (b"0\n", b"")

    async def test_commands_run_in_order(self, guest: Guest) -> None:
        await guest.open_session("s")
        for i in range(8):
            await guest.start(f"a{i}", f"sleep 0.0{8 - i}; echo {i} >> order", session_id="s")
        await guest.collect("a7")
        assert (guest.shared / "order").read_text().split() == [str(i) for i in range(8)]

    async def test_two_sessions_and_plain_commands_do_not_meet(self, guest: Guest) -> None:
        await guest.open_session("s")
        await guest.open_session("t")
        await guest.run("a", "cd /; export A=s", session_id="s")
        await guest.run("b", "cd /usr; export A=t", session_id="t")
        for exec_id, session, seen in (("c", "s", "/ s"), ("d", "t", "/usr t")):
            ran = await guest.run(exec_id, "echo $PWD $A", session_id=session)
            assert ran.stdout.decode() == f"{seen}\n"
        ran = await guest.run("e", "echo $PWD $A")
        assert ran.stdout.decode() == f"{guest.seen_shared}\n"

    async def test_it_survives_what_a_command_does_to_its_shell(self, guest: Guest) -> None:
        """Where the shell ended by itself the state is as it left it, else as it was."""
        expected = {
            "cd /usr; exit 3": "/usr",
            "cd /usr; set -e; false; true": "/usr",
            "cd /usr; set -u; echo $unset": "/usr",
            "cd /usr; trap 'echo bye' EXIT": "/tmp",
            "cd /usr; exec true": "/tmp",
            "cd /usr; kill -9 $$": "/tmp",
            "cd /usr; if then": "/tmp",
            "cd /usr; echo 'unclosed": "/tmp",
            "cd /usr; sleep 1000": "/tmp",
        }
        seen = {}
        for number, mishap in enumerate(expected):
            session = f"s{number}"
            await guest.open_session(session)
            await guest.run(f"a{number}", "cd /tmp; export A=1", session_id=session)
            await guest.run(f"b{number}", mishap, session_id=session, timeout_ms=300)
            ran = await guest.run(f"c{number}", "echo $A; pwd", session_id=session)
            assert (ran.stderr, ran.exit.exit_code) == (b"", 0)
            one, seen[mishap] = ran.stdout.decode().split()
            assert one == "1"
        assert seen == expected

    async def test_a_timeout_leaves_the_state_before_it(self, guest: Guest) -> None:
        await guest.open_session("s")
        await guest.run("a", "cd /tmp; export A=1", session_id="s")
        ran = await guest.run("b", "cd /; export A=2; sleep 1000", session_id="s", timeout_ms=200)
        assert ran.exit.timed_out
        ran = await guest.run("c", "echo $A; pwd", session_id="s")
        assert ran.stdout == b"1\n/tmp\n"

    async def test_a_directory_that_is_gone_is_reported(self, guest: Guest) -> None:
        await guest.open_session("s")
        await guest.run("a", "mkdir x; cd x; rmdir ../x", session_id="s")
        ran = await guest.run("b", "pwd", session_id="s")
        assert b"the working directory" in ran.stderr
        assert ran.stdout.decode().strip() == str(guest.seen_shared)

    async def test_background_processes_live_until_it_is_closed(self, guest: Guest) -> None:
        await guest.open_session("s")
        ran = await guest.run(
            "a", "(while :; do echo noise; sleep 0.01; done) & echo $! > pid", session_id="s"
        )
        assert ran.exit.exit_code == 0
        assert b"noise" in ran.stdout
        pid = (guest.shared / "pid").read_text().strip()
        assert (await guest.run("b", f"kill -0 {pid}; echo $?", session_id="s")).stdout == b"0\n"
        assert (await guest.hello()).running == 1
        assert (await guest.collect("a")).stdout == ran.stdout
        await guest.close_session("s")
        assert not guest.alive(pid)
        assert (await guest.hello()).running == 0

    async def test_a_timeout_spares_earlier_background_processes(self, guest: Guest) -> None:
        await guest.open_session("s")
        await guest.run("a", "setsid sleep 1000 > /dev/null 2>&1 & echo $! > pid", session_id="s")
        pid = (guest.shared / "pid").read_text().strip()
        ran = await guest.run(
            "b", "setsid sleep 1001 & echo $! > pid2; sleep 1002", session_id="s", timeout_ms=200
        )
        assert ran.exit.timed_out
        assert guest.alive(pid)
        assert not guest.alive((guest.shared / "pid2").read_text().strip())
        await guest.close_session("s")
        assert not guest.alive(pid)

    async def test_cancel_ends_a_command_that_waits_for_its_turn(self, guest: Guest) -> None:
        await guest.open_session("s")
        await guest.start("a", "echo > begun; sleep 1000", session_id="s")
        await guest.start("b", "touch ran", session_id="s")
        assert await guest.cancel("b")
        ran = await guest.collect("b")
        assert (ran.exit.cancelled, ran.exit.exit_code) == (True, 143)
        assert await guest.cancel("a")
        assert (await guest.run("c", "ls", session_id="s")).stdout.split() in ([b"begun"], [])

    async def test_closing_ends_what_runs_and_what_waits(self, guest: Guest) -> None:
        await guest.open_session("s")
        await guest.start("a", "echo $$ > pid; sleep 1000", session_id="s")
        await guest.start("b", "touch ran", session_id="s")
        while not (guest.shared / "pid").exists() or not (guest.shared / "pid").read_text():
            await asyncio.sleep(0.01)
        await guest.close_session("s")
        await guest.close_session("s")
        assert not guest.alive((guest.shared / "pid").read_text().strip())
        assert (await guest.collect("a")).exit.cancelled
        assert (await guest.collect("b")).exit.cancelled
        assert not (guest.shared / "ran").exists()
        with pytest.raises(WireError, match="no session s"):
            await guest.start("c", "true", session_id="s")

    async def test_opening_again_answers_for_the_same_session(self, guest: Guest) -> None:
        assert not await guest.open_session("s", cwd="/tmp")
        assert await guest.open_session("s", cwd="/tmp")
        with pytest.raises(WireError, match="session_id: s is taken") as raised:
            await guest.open_session("s")
        assert code_of(raised) is Code.CONFLICT
        await guest.close_session("s")
        assert not await guest.open_session("s")

    async def test_bad_requests_are_refused(self, backend: Backend) -> None:
        async with backend(sessions_max=1) as guest:
            with pytest.raises(WireError, match="cwd: "):
                await guest.open_session("s", cwd="/etc")
            with pytest.raises(WireError, match="environment: 'PATH' may not be set"):
                await guest.open_session("s", environment={"PATH": "x"})
            await guest.open_session("s")
            with pytest.raises(WireError, match="1 sessions are open") as raised:
                await guest.open_session("t")
            assert code_of(raised) is Code.RESOURCE_EXHAUSTED

    async def test_the_limit_on_commands_covers_what_waits(self, backend: Backend) -> None:
        async with backend(commands_max=2) as guest:
            await guest.open_session("s")
            await guest.start("a", "sleep 1000", session_id="s")
            await guest.start("b", "true", session_id="s")
            with pytest.raises(WireError) as raised:
                await guest.start("c", "true", session_id="s")
            assert code_of(raised) is Code.RESOURCE_EXHAUSTED


async def test_durations_are_measured(guest: Guest) -> None:
    began = time.monotonic()
    ran = await guest.run("a", "sleep 0.1")
    assert 100 <= ran.exit.duration_ms <= (time.monotonic() - began) * 1000 + 1
