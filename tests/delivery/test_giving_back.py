"""What a client was handed out and no worker got goes back, and is no attempt."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stratamq.api.v1 import delivery_pb2 as pb
from stratamq.client._async.shared_reader import AsyncSharedReader
from stratamq.client._async.together import AsyncCallsOfGroups
from stratamq.client.group_receipts import HandedFrame, HandOut
from stratamq.client.hand_outs import HandOuts
from stratamq.client.received import split_heads
from stratamq.errors import UnavailableError
from stratamq.files.clock import SystemClock
from stratamq.files.simulated_time import SimulatedClock
from stratamq.formats.frame import encode
from stratamq.formats.receipts import TICKET_BYTES, split_receipt

HANG_S = 120
INVISIBLE_S = 30.0


def handed(offset: int) -> HandedFrame:
    raw = encode(
        topic=b"orders",
        body=b"%d" % offset,
        born_host=bytes(8),
        store_host=bytes(8),
        queue_offset=offset,
        physical_offset=1_000 * offset,
    )
    ((frame, head),) = split_heads(raw)
    return frame, head, HandOut(b"t" * TICKET_BYTES, 1, 0)


class Service:
    """A broker that always has messages. The same attempt id gets the same messages."""

    def __init__(self) -> None:
        self.name = "a"
        self.given: dict[str, list[int]] = {}
        """By attempt id."""
        self.unseen: list[int] = []
        """Given back as no attempt."""
        self.attempts = 0
        """Calls for messages."""
        self.answers = asyncio.Event()
        self.answers.set()
        self.returns = asyncio.Event()
        self.returns.set()
        self.is_away = False
        self.handed_out = 0

    async def run(self, operation: Any) -> Any:
        if self.is_away:
            raise UnavailableError("away")
        request = operation.request
        if isinstance(request, pb.ReceiveRequest):
            self.attempts += 1
            found = [self._hand_out(worker) for worker in request.workers]
            await self.answers.wait()
            return found
        assert isinstance(request, pb.ReturnMessagesRequest) and request.unseen
        await self.returns.wait()
        for receipt in request.receipts:
            _, start, count, _, _ = split_receipt(receipt)
            self.unseen += range(start, start + count)
        return []

    run_soon = run

    def _hand_out(self, worker: pb.Worker) -> list[HandedFrame]:
        if worker.attempt_id not in self.given:
            first, self.handed_out = self.handed_out, self.handed_out + worker.max_messages
            self.given[worker.attempt_id] = [*range(first, self.handed_out)]
        return [handed(offset) for offset in self.given[worker.attempt_id]]


class Scene:
    def __init__(self, *names: str, clock: Any = None) -> None:
        self.clock = clock or SimulatedClock()
        self.services = {name: Service() for name in names or ("a",)}
        for name, service in self.services.items():
            service.name = name
        self.calls = AsyncCallsOfGroups(self.clock)
        self.brokers: Any = SimpleNamespace(
            settings=SimpleNamespace(clock=self.clock), all=self._all
        )

    async def _all(self) -> dict[str, Service]:
        return self.services

    @property
    def service(self) -> Service:
        return self.services["a"]

    def reader(self, invisible_s: float = INVISIBLE_S, **more: bool) -> AsyncSharedReader:
        given = ("orders", "billing", "client", 8, invisible_s)
        return AsyncSharedReader(self.brokers, self.calls, *given, **{"leased": False, **more})


@pytest.fixture
async def scene():
    async with asyncio.timeout(HANG_S):
        yield Scene()


async def cut_short(call: Any) -> None:
    """Cancelled while it waits."""
    task = asyncio.ensure_future(call)
    for _ in range(20):
        await asyncio.sleep(0)
    assert task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_of_a_batch_what_an_iterating_worker_did_not_get(scene):
    async with scene.reader() as reader:
        assert [(await anext(reader)).body for _ in range(3)] == [b"0", b"1", b"2"]
    assert scene.service.unseen == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("leased", [False, True])
async def test_of_a_batch_what_has_less_than_half_of_its_time_left(scene, leased):
    """Its worker could not acknowledge it in time, and the lease of one that has one keeps it."""
    async with scene.reader(leased=leased) as reader:
        await anext(reader)
        scene.clock.advance_ms(14_999)
        assert (await anext(reader)).body == b"1"
        scene.clock.advance_ms(1)
        assert (await anext(reader)).body == (b"2" if leased else b"8")
        assert scene.service.unseen == ([] if leased else [*range(2, 8)])


async def test_a_worker_gets_something_of_each_batch_however_slow_its_broker_is(scene):
    async with scene.reader(0.001) as reader:
        service = scene.service
        service.answers.clear()
        first = asyncio.ensure_future(anext(reader))
        while not service.attempts:
            await asyncio.sleep(0)
        scene.clock.advance_ms(60_000)
        service.answers.set()
        assert (await first).body == b"0"


async def test_the_rest_of_a_batch_is_received_before_more_is_asked_for(scene):
    async with scene.reader() as reader:
        await anext(reader)
        assert [one.body for one in await reader.receive(5)] == [b"1", b"2", b"3", b"4", b"5"]
        assert len(await reader.receive(5)) == 2
        assert scene.service.attempts == 1


@pytest.mark.parametrize("wait_s", [0, 20])
async def test_what_a_call_was_given_whose_worker_was_cancelled(scene, wait_s):
    """Together with others, or waiting by itself: the same attempt is made once more."""
    service, reader = scene.service, scene.reader()
    reader._waits = bool(wait_s)
    service.answers.clear()
    await cut_short(reader.receive(wait_s=wait_s))
    service.answers.set()
    await reader.close()
    assert len(service.given) == 1
    assert service.unseen == [*range(8)]


async def test_what_one_broker_gave_to_a_worker_that_was_cancelled_while_it_asked_another():
    scene = Scene("a", "b")
    first, second = scene.services.values()
    reader = scene.reader()
    reader._turn = 1  # the first broker has the next turn
    second.answers.clear()
    first._hand_out = lambda worker: [handed(0)]  # less than is asked for
    await cut_short(reader.receive())
    second.answers.set()
    await reader.close()
    assert (first.unseen, second.unseen) == ([0], [*range(7)])


def ahead(monkeypatch: pytest.MonkeyPatch, messages: int) -> None:
    monkeypatch.setattr(HandOuts, "_ahead_of", lambda *_: messages)


async def test_what_was_received_ahead_of_workers_that_ask_for_no_more(monkeypatch):
    """A worker may be busy with one message for longer than the others may wait."""
    ahead(monkeypatch, 16)
    scene = Scene(clock=SystemClock())
    async with asyncio.timeout(HANG_S), scene.reader(invisible_s=0.02) as reader:
        assert len(await reader.receive()) == 8
        while len(scene.service.unseen) < 16:
            await asyncio.sleep(0.01)
    assert scene.service.unseen == [*range(8, 24)]


async def test_what_was_going_back_when_its_worker_was_cancelled(scene, monkeypatch):
    ahead(monkeypatch, 16)
    service, reader, other = scene.service, scene.reader(), scene.reader()
    got = [int(one.body) for one in await reader.receive() + await other.receive()]
    scene.clock.advance_ms(15_000)
    service.returns.clear()
    await cut_short(reader.receive())
    service.returns.set()
    await reader.close()
    await other.close()
    assert sorted(got + service.unseen) == [*range(service.handed_out)]


async def test_a_close_gives_up_at_the_first_call_that_is_not_answered(scene, monkeypatch):
    ahead(monkeypatch, 1_016)
    service, reader = scene.service, scene.reader()
    await reader.receive()
    service.is_away = True
    await reader.close()
    service.is_away = False
    async with scene.reader() as reader:
        await reader.receive()
    assert not {*service.unseen} & {*range(1_024)}, "their time goes by"
