"""Clocks stand still while a person is asked, and go on with what was left."""

import asyncio

import pytest

from guest.tools.clock import Clock, Pause


async def ended(clock: Clock, seconds: float) -> bool:
    """Whether a clock ends a block of so many seconds."""
    try:
        async with clock:
            await asyncio.sleep(seconds)
    except TimeoutError:
        assert clock.expired
        return True
    return False


async def test_a_clock_ends_its_block() -> None:
    assert await ended(Clock(0.05), 30)
    assert not await ended(Clock(30), 0.01)


async def test_time_in_which_a_person_is_asked_does_not_count() -> None:
    pause, clock = Pause(), Clock(0.2)
    async with clock:
        with pause.stopping(clock):
            with pause.asking(), pause.asking():
                await asyncio.sleep(0.4)
            with pause.asking():
                await asyncio.sleep(0.4)
    assert not clock.expired


async def test_a_clock_that_begins_while_a_person_is_asked_stands_still() -> None:
    pause, clock = Pause(), Clock(0.1)
    with pause.asking():
        async with clock:
            with pause.stopping(clock):
                await asyncio.sleep(0.3)
    assert not clock.expired


async def test_a_clock_goes_on_with_what_was_left() -> None:
    pause, clock = Pause(), Clock(0.1)

    async def asked_once() -> None:
        async with clock:
            with pause.stopping(clock):
                with pause.asking():
                    await asyncio.sleep(0.3)
                await asyncio.sleep(30)

    with pytest.raises(TimeoutError):
        await asked_once()
    assert clock.expired


async def test_questions_that_come_when_time_is_up_change_nothing() -> None:
    pause, clock = Pause(), Clock(0.05)

    async def asked_too_late() -> None:
        async with clock:
            with pause.stopping(clock):
                try:
                    await asyncio.sleep(30)
                finally:
                    with pause.asking():
                        pass

    with pytest.raises(TimeoutError):
        await asked_too_late()


async def test_who_waits_for_a_question_hears_of_it() -> None:
    pause = Pause()
    waiting = asyncio.create_task(pause.asked())
    await asyncio.sleep(0)
    assert not waiting.done()
    with pause.asking():
        await waiting
        await pause.asked()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pause.asked(), 0.05)
