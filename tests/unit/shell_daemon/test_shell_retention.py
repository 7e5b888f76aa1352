"""What is forgotten, and when: ended commands by number and age, and commands that wait for input
without a reader."""

import asyncio

import pytest
from wire.errors import WireError

from tests.support.guests.shell_backends import WAIT, in_process


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
        await guest.cancel("running")
        assert (await guest.collect("running")).exit.cancelled


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
        await guest.cancel("running")
        assert (await guest.collect("running")).exit.cancelled


async def test_a_released_id_is_not_forgotten_for_its_predecessor_s_age() -> None:
    async with in_process(ended_age=0.4) as guest:
        await guest.run("a", "true")
        await asyncio.sleep(0.2)
        await guest.release("a")
        await guest.start("a", "sleep 1000")
        await asyncio.sleep(0.4)
        await guest.cancel("a")
        assert (await guest.collect("a")).exit.cancelled


async def test_a_reader_is_not_cut_off_when_its_command_is_forgotten() -> None:
    async with in_process(ended_max=1) as guest:
        reading = asyncio.Event()
        await guest.start("a", f"echo first; {WAIT} seq 10000")
        reader = asyncio.create_task(guest.collect("a", reading=reading))
        await reading.wait()
        guest.let_go()
        for number in range(3):
            await guest.run(f"b{number}", "true")
        assert len((await reader).stdout) == 48894 + len("first\n")


async def test_a_command_that_waits_for_input_ends_when_nobody_reads_it_any_more() -> None:
    async with in_process(unattended=0.8) as guest:
        await guest.start("never", "sleep 1000", open_stdin=True)
        await guest.start("left", "echo first; sleep 1000", open_stdin=True)
        reading = asyncio.Event()
        reader = asyncio.create_task(guest.collect("left", reading=reading))
        await reading.wait()
        await asyncio.sleep(1.6)
        assert (await guest.collect("never")).exit.cancelled
        assert not reader.done()
        reader.cancel()
        await asyncio.sleep(1.6)
        assert (await guest.collect("left")).exit.cancelled
