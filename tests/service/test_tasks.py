"""The first coroutine to end ends the others, and none outlives its caller."""

import asyncio

import pytest

from stratamq.service.tasks import all_of, first_ended

pytestmark = pytest.mark.anyio


class Work:
    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.has_ended = False

    async def forever(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # an end that takes a turn of the loop
            self.has_ended = True


async def test_the_others_have_ended_when_the_first_has():
    work = Work()
    await first_ended(work.forever(), work.begun.wait())
    assert work.has_ended


async def test_the_first_error_is_raised_once_the_others_have_ended():
    work = Work()

    async def fail() -> None:
        await work.begun.wait()
        raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        await first_ended(work.forever(), fail())
    assert work.has_ended


@pytest.mark.parametrize("wait", [first_ended, all_of])
async def test_nothing_outlives_a_caller_that_is_cancelled(wait):
    work = Work()
    caller = asyncio.ensure_future(wait(work.forever()))
    await work.begun.wait()
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    assert work.has_ended


async def test_all_have_ended_before_an_error_is_raised():
    ended = []

    async def fail() -> None:
        raise ValueError("failed")

    async def later() -> None:
        await asyncio.sleep(0)
        ended.append("later")

    with pytest.raises(ValueError, match="failed"):
        await all_of(fail(), later())
    assert ended == ["later"]
    await all_of()
