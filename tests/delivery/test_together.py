"""What the workers of one client ask together: two calls at a time, for all that wait, and each
gets its own answer."""

import asyncio
from collections.abc import Sequence

import pytest

from stratamq.client._async.together import CALL_MESSAGES, CALL_WORKERS, AsyncTogether
from stratamq.client.group_receipts import HandedMessage, receipts_of
from stratamq.errors import InvalidRequestError, UnavailableError
from stratamq.formats.frame import encode
from stratamq.formats.receipts import TICKET_BYTES, split_receipt

HANG_S = 120


class Service:
    """Answers an item with itself, once `open` is set. `calls` are the items of each call."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.open = asyncio.Event()
        self.error: Exception | None = None
        self.wrong = -1
        self.together: AsyncTogether[int, int] = AsyncTogether(self.answer)

    async def answer(self, items: Sequence[int]) -> list[int]:
        self.calls.append([*items])
        await self.open.wait()
        if self.wrong in items:
            raise InvalidRequestError(f"{self.wrong} is wrong")
        if self.error is not None:
            raise self.error
        return [*items]

    def ask(self, *items: int, size: int = 1) -> list[asyncio.Task[int]]:
        return [asyncio.ensure_future(self.together.ask(item, size)) for item in items]


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def answers(tasks: list[asyncio.Task[int]]) -> list[object]:
    async with asyncio.timeout(HANG_S):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_comes_while_a_call_is_under_way_goes_with_the_next_one():
    service = Service()
    tasks = service.ask(1)
    await settled()
    tasks += service.ask(2)
    await settled()
    tasks += service.ask(3, 4, 5)
    await settled()
    assert service.calls == [[1], [2]]
    service.open.set()
    assert await answers(tasks) == [1, 2, 3, 4, 5]
    assert service.calls == [[1], [2], [3, 4, 5]]


async def test_those_whom_one_answer_wakes_ask_together_again():
    service = Service()
    service.open.set()

    async def worker(number: int) -> None:
        for _ in range(3):
            await service.together.ask(number, 1)

    async with asyncio.timeout(HANG_S):
        await asyncio.gather(*map(worker, range(8)))
    assert [sorted(one) for one in service.calls] == [[*range(8)]] * 3


@pytest.mark.parametrize(
    ("size", "together"), [(1, CALL_WORKERS), (CALL_MESSAGES // 4, 4), (CALL_MESSAGES + 1, 1)]
)
async def test_a_call_is_bounded(size, together):
    service = Service()
    service.open.set()
    items = [*range(2 * CALL_WORKERS)]
    assert await answers(service.ask(*items, size=size)) == items
    assert {len(call) for call in service.calls} == {together}
    assert [item for call in service.calls for item in call] == items


async def test_all_get_the_error_of_their_call():
    service = Service()
    service.open.set()
    service.error = UnavailableError("gone")
    found = await answers(service.ask(1, 2))
    assert [type(one) for one in found] == [UnavailableError] * 2


async def test_what_one_asks_wrongly_is_not_refused_to_the_others():
    service = Service()
    service.open.set()
    service.wrong = 2
    one, two, three = await answers(service.ask(1, 2, 3))
    assert (one, three) == (1, 3) and isinstance(two, InvalidRequestError)


@pytest.mark.parametrize("also", [(), (2,), (2, 3), (4,)])
async def test_a_call_whose_caller_is_cancelled_is_made_again_for_the_others(also):
    """Those that were cancelled with it are not waited for."""
    service = Service()
    tasks = service.ask(1, 2, 3, 4)
    await settled()
    tasks += service.ask(5)
    gone = [1, *also]
    for number in reversed(gone):
        tasks[number - 1].cancel()
    await settled()
    service.open.set()
    left = [number for number in range(1, 6) if number not in gone]
    found = await answers(tasks)
    assert [found[number - 1] for number in left] == left
    assert all(isinstance(found[number - 1], asyncio.CancelledError) for number in gone)


async def test_one_that_was_to_make_the_next_call_and_is_cancelled_lets_another_make_it():
    service = Service()
    tasks = service.ask(1)
    await settled()
    tasks += service.ask(2)
    await settled()
    tasks += service.ask(3, 4)
    await settled()
    service.open.set()
    tasks[0].add_done_callback(lambda _: tasks[2].cancel())
    one, two, three, four = await answers(tasks)
    assert (one, two, four) == (1, 2, 4) and isinstance(three, asyncio.CancelledError)


def message(offset: int, ticket: bytes) -> HandedMessage:
    place = 1_000 * offset
    frame = encode(
        topic=b"orders",
        body=b"",
        born_host=bytes(8),
        store_host=bytes(8),
        queue_offset=offset,
        physical_offset=place,
    )
    made = HandedMessage(frame)
    made.ticket = ticket
    return made


def test_consecutive_messages_of_one_ticket_have_one_receipt():
    one, other = b"a" * TICKET_BYTES, b"b" * TICKET_BYTES
    given = [(5, one), (6, one), (8, one), (9, other), (10, other), (3, other)]
    parts = [split_receipt(data) for data in receipts_of(message(*each) for each in given)]
    assert parts == [
        (one, 5, 2, 5_000, 6_000),
        (one, 8, 1, 8_000, 8_000),
        (other, 9, 2, 9_000, 10_000),
        (other, 3, 1, 3_000, 3_000),
    ]
    assert receipts_of([]) == []
