"""A follower's stream and a log that is closed and opened again while it begins."""

import asyncio
from collections.abc import AsyncIterator
from typing import Self

import pytest
from stratamq_commitlog.replica import follow_hub
from stratamq_commitlog.use_cases.served_log import ServedLog

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import UnavailableError
from stratamq.formats.log_state import ReplicaState
from tests.commitlog.served import servicer_of
from tests.support.logs import Store, message

OPEN = pb.FollowRequest(open=pb.FollowOpen(name="dispatcher"))
OPEN_REPLICATION = pb.FollowRequest(
    open=pb.FollowOpen(name="ha", horizon=pb.FOLLOW_HORIZON_REPLICABLE)
)


def test_a_follower_whose_opening_comes_while_the_log_is_opened_again_is_asked_to_retry():
    """A session of the log that is being closed would end without a message to the follower."""
    store = Store()
    store.start()
    served = ServedLog(store.log, opening="")
    servicer = servicer_of(served)

    async def requests() -> AsyncIterator[pb.FollowRequest]:
        served.opening = "its end is being cut off"
        servicer.end_follows()
        yield OPEN

    async def first() -> pb.FollowResponse:
        return await anext(servicer.Follow(requests(), None))

    with pytest.raises(UnavailableError, match="its end is being cut off"):
        asyncio.run(first())
    assert store.log.hub.followers == {}


class Following:
    """A follower of a log that would let it wait for ever for what is in no hurry."""

    def __init__(self, opening: pb.FollowRequest = OPEN, **settings: object) -> None:
        self._opening = opening
        self.store = Store(**settings)
        self.store.start()
        self.servicer = servicer_of(ServedLog(self.store.log, opening=""))
        self._requests: asyncio.Queue[pb.FollowRequest | None] = asyncio.Queue()
        self._responses: asyncio.Queue[pb.FollowResponse | None] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self._requests.put_nowait(self._opening)
        self._task = asyncio.create_task(self._receive())
        assert (await self._responses.get()).HasField("opened")
        await self.heard()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    def report(self, **said: object) -> None:
        report = pb.FollowReport(**said)  # type: ignore[arg-type]
        self._requests.put_nowait(pb.FollowRequest(report=report))

    def hang_up(self) -> None:
        self._requests.put_nowait(None)

    def append(self, topic: str = "orders") -> int:
        self.store.put(b"x", topic)
        self.store.settle()
        return self.store.log.offsets.confirmed

    async def heard(self) -> list[pb.FollowResponse | None]:
        """What comes without any time passing; None: the stream's end."""
        for _ in range(50):
            await asyncio.sleep(0)
        return [self._responses.get_nowait() for _ in range(self._responses.qsize())]

    async def _receive(self) -> None:
        async for response in self.servicer.Follow(self._sent(), None):
            self._responses.put_nowait(response)
        self._responses.put_nowait(None)

    async def _sent(self) -> AsyncIterator[pb.FollowRequest]:
        while (request := await self._requests.get()) is not None:
            yield request


class Unhurried(Following):
    """It has said that no caller waits for it."""

    def __init__(self, monkeypatch) -> None:
        monkeypatch.setattr(follow_hub, "UNHURRIED_SECONDS", 1e9)
        super().__init__()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.report(unhurried=True)
        await self.heard()
        self.end = self.append()
        assert await self.heard() == []
        return self


class Replication(Following):
    """The replication service of a master that waits for a slave."""

    def __init__(self, monkeypatch) -> None:
        monkeypatch.setattr(follow_hub, "CONFIRMED_SECONDS", 1e9)
        monkeypatch.setattr(follow_hub, "STEADY_SECONDS", 0.0)
        super().__init__(OPEN_REPLICATION, role="SYNC_MASTER")

    def send(self) -> int:
        """Store a message that no slave has yet."""
        self.store.send(message(b"x"))
        self.store.settle()
        return self.store.log.offsets.appended

    def acknowledge(self, offset: int) -> None:
        slave = ReplicaState("slave", offset, connected=True)
        self.store.log.report_replication(self.store.log.generation, [slave])
        self.store.settle()


def following(monkeypatch, scenario) -> None:
    async def run() -> None:
        async with Unhurried(monkeypatch) as follower:
            await scenario(follower)

    asyncio.run(run())


def test_a_caller_that_begins_to_wait_while_an_event_is_held_back_gets_it_at_once(monkeypatch):
    async def scenario(follower: Unhurried) -> None:
        follower.report(unhurried=False)
        (response,) = await follower.heard()
        assert response.event.end_offset == follower.end
        follower.report(unhurried=True)
        second = follower.append()
        assert await follower.heard() == []
        follower.report(unhurried=True)  # another report of one for which no caller waits
        assert await follower.heard() == []
        follower.report(unhurried=False)
        (response,) = await follower.heard()
        assert response.event.start_offset == follower.end
        assert response.event.end_offset == second

    following(monkeypatch, scenario)


def queue(topic: str) -> pb.FollowQueue:
    return pb.FollowQueue(topic=topic, queue_id=0)


def test_a_message_of_a_queue_that_a_caller_waits_for_is_sent_at_once_and_others_are_held_back(
    monkeypatch,
):
    monkeypatch.setattr(follow_hub, "SHORT_SECONDS", 0.0)

    async def scenario(follower: Unhurried) -> None:
        follower.report(by_queue=True, began=[queue("waited")])
        assert await follower.heard() == []  # what is held back is in another queue
        other = follower.append("other")
        assert await follower.heard() == []
        waited = follower.append("waited")
        (response,) = await follower.heard()
        assert (response.event.start_offset, response.event.end_offset) == (0, waited)
        assert other < waited
        follower.append("other")
        assert await follower.heard() == []
        follower.report(by_queue=True, ended=[queue("waited")], began=[queue("later")])
        end = follower.append("waited")
        assert await follower.heard() == []
        follower.report(by_queue=True, began=[queue("other")])
        (response,) = await follower.heard()
        assert (response.event.start_offset, response.event.end_offset) == (waited, end)

    following(monkeypatch, scenario)


def test_messages_that_callers_wait_for_come_together_when_many_come(monkeypatch):
    monkeypatch.setattr(follow_hub, "SHORT_SECONDS", 1e9)

    async def scenario(follower: Unhurried) -> None:
        follower.report(by_queue=True, began=[queue("orders")])
        (response,) = await follower.heard()  # began to wait for what is held back: no pause
        assert response.event.end_offset == follower.end
        follower.append("other")
        assert await follower.heard() == []
        follower.append()
        assert await follower.heard() == []

    following(monkeypatch, scenario)


def test_a_follower_that_says_nothing_of_queues_gets_everything_at_once(monkeypatch):
    monkeypatch.setattr(follow_hub, "SHORT_SECONDS", 0.0)

    async def scenario(follower: Unhurried) -> None:
        follower.report()
        (response,) = await follower.heard()
        assert response.event.end_offset == follower.end
        end = follower.append("other")
        (response,) = await follower.heard()
        assert response.event.end_offset == end

    following(monkeypatch, scenario)


def test_a_log_that_stops_sends_what_it_held_back(monkeypatch):
    async def scenario(follower: Unhurried) -> None:
        hub = follower.store.log.hub
        hub.closing = True
        hub.moved()
        event, closing = await follower.heard()
        assert event.event.end_offset == follower.end
        assert closing.closing.end_offset == follower.end

    following(monkeypatch, scenario)


def test_a_log_that_is_cut_ends_the_stream_at_once(monkeypatch):
    async def scenario(follower: Unhurried) -> None:
        follower.store.log.hub.end_all()
        assert await follower.heard() == [None]

    following(monkeypatch, scenario)


def test_a_follower_that_hangs_up_while_an_event_is_held_back_is_gone_at_once(monkeypatch):
    async def scenario(follower: Unhurried) -> None:
        follower.hang_up()
        assert await follower.heard() == [None]
        assert follower.store.log.hub.followers["dispatcher"].connections == 0

    following(monkeypatch, scenario)


def test_replication_gets_bytes_at_once_and_what_is_confirmed_with_the_next_ones(monkeypatch):
    async def run() -> None:
        async with Replication(monkeypatch) as replication:
            replication.acknowledge(replication.store.log.offsets.appended)
            first = replication.send()
            (response,) = await replication.heard()
            assert response.event.end_offset == first
            replication.acknowledge(first)
            assert replication.store.log.offsets.confirmed == first
            assert await replication.heard() == []
            second = replication.send()
            (response,) = await replication.heard()
            assert (response.event.end_offset, response.event.confirmed_offset) == (second, first)

    asyncio.run(run())
