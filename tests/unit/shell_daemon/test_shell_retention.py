"""What is forgotten, and when: ended commands by number and age, idle sessions."""

import asyncio

import pytest
from wire.errors import WireError

from tests.support.shell_backends import alive, in_process


async def test_the_oldest_ended_commands_are_forgotten_beyond_the_number() -> None:
    async with in_process(ended_max=3) as guest:
        await guest.start("running", "sleep 1000")
        for number in range(5):
            await guest.run(f"a{number}", f"echo {number}")
        for number in (0, 1):
            with pytest.raises(WireError, match=f"no command a{number}"):
                await guest.collect(f"a{number}")
        for number in (2, 3, 4):
            assert (await guest.collect(f"a{number}")).stdout == f"{number}\n".encode()
        assert await guest.cancel("running")


async def test_ended_commands_are_forgotten_with_age_and_running_ones_are_not() -> None:
    async with in_process(ended_age=0.1) as guest:
        await guest.start("running", "sleep 1000")
        await guest.run("a", "true")
        async with asyncio.timeout(60):
            while True:
                try:
                    await guest.collect("a")
                except WireError:
                    break
                await asyncio.sleep(0.02)
        assert await guest.cancel("running")


async def test_a_released_id_is_not_forgotten_for_its_predecessor_s_age() -> None:
    async with in_process(ended_age=0.4) as guest:
        await guest.run("a", "true")
        await asyncio.sleep(0.2)
        await guest.release("a")
        await guest.start("a", "sleep 1000")
        await asyncio.sleep(0.4)
        assert await guest.cancel("a")


async def test_a_reader_is_not_cut_off_when_its_command_is_forgotten() -> None:
    async with in_process(ended_max=1) as guest:
        await guest.start("a", "read x; seq 10000", keep_stdin_open=True)
        reader = asyncio.create_task(guest.collect("a"))
        await asyncio.sleep(0.05)
        await guest.write("a", 0, b"", close=True)
        for number in range(3):
            await guest.run(f"b{number}", "true")
        assert (await reader).exit.stdout_bytes == 48894


async def test_an_idle_session_is_closed_with_its_background_and_a_used_one_is_not() -> None:
    async with in_process(session_idle=0.4) as guest:
        await guest.open_session("idle")
        await guest.open_session("used")
        await guest.start("long", "sleep 1000", session_id="used")
        await guest.run("a", "setsid sleep 1000 & echo $! > pid", session_id="idle")
        pid = (guest.shared / "pid").read_text().strip()
        async with asyncio.timeout(60):
            while alive(pid):
                await asyncio.sleep(0.02)
        with pytest.raises(WireError, match="no session idle"):
            await guest.start("b", "true", session_id="idle")
        assert await guest.cancel("long")
        assert (await guest.run("c", "echo on", session_id="used")).stdout == b"on\n"
