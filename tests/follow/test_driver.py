"""The driver of followers against a real log: everything once and in order, whatever happens to the
log; what the engine refuses ends it."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from stratamq_commitlog.replica.follow_hub import UNHURRIED_SECONDS

from stratamq.client import connect
from stratamq.errors import CorruptRecordError
from stratamq.files.real import RealFiles
from stratamq.follow import demand as demand_module
from stratamq.follow.demand import Demand
from stratamq.follow.driver import LogFollower, confirmed_end
from stratamq.follow.protocol import Event, Opened, Queue, Report
from stratamq.formats.dispatch import dispatch_columns, scan_lengths
from stratamq.formats.log_state import FollowerState
from stratamq.rpc import discovery
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.store.generations import is_listed
from stratamq.store.segment_reader import SegmentReader
from tests.follow.conftest import LOG_ALONE
from tests.support.brokers import COMMITLOG, Broker


class Recorder:
    """A follower engine that keeps the place of every message and makes nothing durable but that
    place. `fail_at` makes it refuse the first range that reaches this offset."""

    name = "recorder"

    def __init__(self, root: Path, fail_at: int | None = None) -> None:
        self.generation = self.applied = self.durable = 0
        self.messages: list[tuple[str, int, int, int]] = []
        self.openings: list[Opened] = []
        self.events = 0
        self.error: BaseException | None = None
        self.closed_at: list[int] = []
        self.changed = asyncio.Event()
        self._root = root
        self._fail_at = fail_at
        self._reader: SegmentReader | None = None

    def resume_point(self) -> tuple[int, int]:
        return self.generation, self.applied

    def opened(self, opened: Opened) -> None:
        self.openings.append(opened)
        self._reader = SegmentReader(RealFiles(self._root), "commitlog", opened.segment_bytes)
        self.messages = [one for one in self.messages if one[3] < opened.cut_to]
        self.applied = min(self.applied, opened.cut_to) if self.generation else opened.cut_to
        self.generation = opened.generation
        self._announce()

    def apply(self, event: Event) -> Iterator[None]:
        assert self._reader is not None
        assert event.start == self.applied
        self.events += 1
        if self._fail_at is not None and event.end > self._fail_at:
            raise CorruptRecordError("this frame is no good", event.start, "magic")
        if event.end > event.start:
            window = self._reader.window(event.start, event.end - event.start)
            lengths = event.lengths
            if lengths is None:
                lengths = scan_lengths(window, event.start, event.end)
            columns = dispatch_columns(window, event.start, lengths)
            places = zip(
                columns.topic_index.tolist(),
                columns.queue_id.tolist(),
                columns.queue_offset.tolist(),
                columns.physical_offset.tolist(),
                strict=True,
            )
            found = [(columns.topics[t], q, o, p) for t, q, o, p in places]
            if event.runs is not None:
                announced = [(t, q, f + n) for t, q, f, count in event.runs for n in range(count)]
                assert announced == [one[:3] for one in found]
            self.messages += found
        yield
        self.applied = event.end
        self.durable = min(event.end, event.flushed)
        self._announce()

    def report(self) -> Report:
        return Report(self.applied, self.durable, 0, self.durable)

    def close_at(self, end: int, done: Callable[[], None]) -> None:
        self.closed_at.append(end)
        self.durable = max(self.durable, end)
        asyncio.get_running_loop().call_soon(done)

    def stopped(self, error: BaseException) -> None:
        self.error = error
        self._announce()

    def _announce(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.changed.wait()


class Following:
    """A recorder that is being driven, on the module's event loop."""

    def __init__(self, run, root: Path, **options) -> None:
        self._run = run
        self._root = root
        fail_at = options.pop("fail_at", None)
        name = options.pop("name", Recorder.name)
        self.connections: list[bool] = []

        async def start() -> None:
            self.recorder = Recorder(root, fail_at)
            self.recorder.name = name
            self.channels = Channels(Endpoints(root), grpc.aio)
            self.follower = LogFollower(
                self.channels,
                self.recorder,
                random=random.Random(1),
                report_interval_s=0.01,
                on_connected=self._connected,
                **options,
            )
            self.task = asyncio.ensure_future(self.follower.run())

        run(start())

    def _connected(self, connected: bool) -> None:
        self.connections.append(connected)
        self.recorder._announce()

    def call_soon(self, function: Callable[[], None]) -> None:
        """On the follower's event loop."""

        async def call() -> None:
            function()

        self._run(call())

    def until(self, condition: Callable[[Recorder], bool]) -> Recorder:
        async def wait() -> None:
            await asyncio.wait_for(
                self.recorder.until(lambda: condition(self.recorder)), timeout=60
            )

        self._run(wait())
        return self.recorder

    def end(self) -> None:
        async def stop() -> None:
            self.task.cancel()
            await asyncio.wait([self.task])
            for channel in self.channels.close():
                await channel.close()

        self._run(stop())


@pytest.fixture
def follow(run, own_log):
    made: list[Following] = []

    def start(**options) -> Following:
        made.append(Following(run, own_log.root, **options))
        return made[-1]

    yield start
    for following in made:
        following.end()


@pytest.fixture
def client(own_log):
    with connect(own_log.root, retry_timeout_s=60) as client:
        yield client


def send(client, count: int, topic: str = "t") -> int:
    """Store so many and return the log's end."""
    with client.producer(batch_messages=10) as producer:
        for number in range(count):
            producer.send(topic, str(number).encode() * 20)
    return client.log_state().appended_offset


def reported(client, end: int) -> FollowerState:
    """What the log knows of its follower once that has reported to have come to `end`."""
    while True:
        (state,) = client.log_state().followers
        if state.durable_offset == end:
            return state


def queue_offsets(recorder: Recorder) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for topic, queue_id, offset, _ in recorder.messages:
        found.setdefault((topic, queue_id), []).append(offset)
    return found


def test_everything_is_applied_once_and_in_order(client, follow):
    following = follow()
    end = send(client, 3000)
    recorder = following.until(lambda r: r.applied == end)
    assert len(recorder.messages) == 3000
    for offsets in queue_offsets(recorder).values():
        assert offsets == list(range(len(offsets)))
    assert [m[3] for m in recorder.messages] == sorted(m[3] for m in recorder.messages)


def test_a_follower_that_comes_late_catches_up_across_segments(client, follow):
    with client.producer() as producer:
        for _ in range(400):
            producer.send("t", bytes(8000))
    end = client.log_state().appended_offset
    assert client.log_state().segment_count > 3
    recorder = follow().until(lambda r: r.applied == end)
    assert len(recorder.messages) == 400


def test_reports_reach_the_log(client, follow):
    following = follow()
    end = send(client, 10)
    following.until(lambda r: r.applied == end)
    state = reported(client, end)
    assert (state.name, state.connected, state.lag_bytes) == ("recorder", True, 0)


def test_a_follower_for_which_no_caller_waits_hears_of_many_single_messages_together(
    run, client, follow, monkeypatch
):
    monkeypatch.setattr(demand_module, "CATCH_UP_S", 3600)
    demand = Demand()
    following = follow(demand=demand)
    end = send(client, 1)
    following.until(lambda r: r.applied == end)
    reported(client, end)
    heard = following.recorder.events
    began = time.monotonic()
    for number in range(200):
        client.send("t", b"%d" % number)
    seconds = time.monotonic() - began
    recorder = following.recorder
    confirmed = partial(confirmed_end, following.channels)
    run(demand.catch_up(lambda: recorder.applied, confirmed))
    assert recorder.applied == client.log_state().confirmed_offset
    # What comes while an event is being sent follows it at once.
    assert recorder.events - heard <= 2 * seconds / UNHURRIED_SECONDS + 3


def test_a_follower_whose_callers_wait_for_one_queue_hears_of_others_together(client, follow):
    demand = Demand()
    following = follow(demand=demand)
    following.until(lambda r: r.openings != [])
    end = send(client, 1)
    following.call_soon(lambda: demand.wait_for(("t", 0), True))
    following.until(lambda r: r.applied == end)
    reported(client, end)
    heard = following.recorder.events
    began = time.monotonic()
    for number in range(200):
        client.send("other", b"%d" % number, queue_id=1)
    seconds = time.monotonic() - began
    assert following.recorder.events - heard <= 2 * seconds / UNHURRIED_SECONDS + 3


class Telling(Demand):
    """It keeps what it has told the log."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[tuple[Queue, ...]] = []
        self._told = asyncio.Event()

    def tell(self, report: Report) -> Report:
        said = super().tell(report)
        self.began += [said.began] if said.began else []
        self._told.set()
        return said

    async def until_told(self, times: int) -> None:
        async with asyncio.timeout(60):
            while len(self.began) < times:
                self._told.clear()
                await self._told.wait()


def test_a_log_that_is_started_again_is_told_of_the_queues_that_callers_wait_for(
    run, follow, own_log
):
    demand = Telling()
    following = follow(demand=demand)
    following.call_soon(lambda: demand.wait_for(("t", 0), True))
    run(demand.until_told(1))
    own_log.kill(COMMITLOG)
    own_log.start([COMMITLOG])
    run(demand.until_told(2))
    assert demand.began == [(("t", 0),)] * 2


def test_the_log_is_followed_again_when_it_comes_back_elsewhere(client, follow, own_log):
    following = follow()
    end = send(client, 100)
    recorder = following.until(lambda r: r.applied == end)
    own_log.kill(COMMITLOG)
    own_log.start([COMMITLOG])
    end = send(client, 100)
    following.until(lambda r: r.applied == end)
    first, second = recorder.openings
    assert second.generation > first.generation
    assert len(recorder.messages) == 200
    for offsets in queue_offsets(recorder).values():
        assert offsets == list(range(len(offsets)))
    assert following.connections == [True, False, True]


@pytest.fixture
def awaited(run, tmp_path) -> Iterator[tuple[Broker, Following]]:
    """A log that waits for its follower when it stops, longer than a test may take."""
    patient = "commitlog.follower_stop_timeout_ms=600000"
    settings = (*LOG_ALONE[:-1], "commitlog.followers=recorder", patient)
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start([COMMITLOG])
        following = Following(run, broker.root)
        yield broker, following
        following.end()


def test_a_log_that_stops_in_order_waits_until_its_follower_has_everything(awaited):
    broker, following = awaited
    with connect(broker.root) as client:
        end = send(client, 500)
    broker.terminate(COMMITLOG)
    recorder = following.recorder
    assert recorder.closed_at == [end]
    assert len(recorder.messages) == 500
    assert not (broker.root / "abort").exists()


def test_a_log_waits_for_no_follower_that_has_left(run, awaited):
    broker, following = awaited
    with connect(broker.root) as client:
        end = send(client, 500)
        recorder = following.until(lambda r: r.applied == end)
        run(following.follower.leave())
        run(asyncio.wait_for(following.task, 60))
        assert recorder.closed_at == [0]
        (state,) = client.log_state().followers
        assert (state.connected, state.durable_offset) == (False, end)
    broker.terminate(COMMITLOG)
    assert not (broker.root / "abort").exists()
    assert len(recorder.openings) == 1


def test_a_log_whose_follower_is_away_keeps_its_abort_file(tmp_path):
    settings = (
        *LOG_ALONE[:-1],
        "commitlog.followers=recorder",
        "commitlog.follower_stop_timeout_ms=0",
    )
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start([COMMITLOG])
        with connect(broker.root) as client:
            send(client, 5)
        broker.terminate(COMMITLOG)
        assert (broker.root / "abort").exists()


def test_a_log_killed_while_its_follower_makes_the_end_durable_is_followed_again(run, tmp_path):
    settings = (*LOG_ALONE[:-1], "commitlog.followers=recorder")
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start([COMMITLOG])
        slow, other = Following(run, broker.root), Following(run, broker.root, name="other")
        finish: list[Callable[[], None]] = []

        def close_at(end: int, done: Callable[[], None]) -> None:
            finish.append(done)
            slow.recorder._announce()

        slow.recorder.close_at = close_at
        try:
            with connect(broker.root) as client:
                end = send(client, 5)
            for following in (slow, other):
                following.until(lambda r: r.applied == end)
            os.kill(broker.pid(COMMITLOG), signal.SIGTERM)
            slow.until(lambda r: finish)
            broker.kill(COMMITLOG)
            # Once the other one's stream is known to have ended, so is the first one's.
            other.until(lambda r: other.connections[-1] is False)
            slow.call_soon(finish[0])
            broker.start([COMMITLOG])
            slow.until(lambda r: len(r.openings) == 2)
        finally:
            slow.end()
            other.end()


def test_what_the_engine_refuses_ends_following_for_good(client, follow, caplog):
    end = send(client, 100)
    following = follow(fail_at=end - 1)
    recorder = following.until(lambda r: r.error is not None)
    assert isinstance(recorder.error, CorruptRecordError)
    following.until(lambda r: following.task.done())
    assert len(recorder.openings) == 1
    assert following.connections == [True, False]
    assert "following stopped" in caplog.text


def test_who_waits_for_a_follower_that_fails_waits_no_longer(client, follow, run):
    demand = Demand()
    end = send(client, 100)
    following = follow(fail_at=end - 1, demand=demand)
    following.until(lambda r: r.error is not None)
    asked: list[None] = []

    async def confirmed() -> int:
        asked.append(None)
        return end

    run(demand.catch_up(lambda: 0, confirmed))
    assert asked == []


def test_the_queue_table_is_given_after_each_opening(client, follow):
    end = send(client, 10)
    tables: list[tuple[int, list]] = []
    following = follow(learn_queues=lambda appended, table, more: tables.append((appended, table)))
    following.until(lambda r: r.applied == end)
    ((appended, table),) = tables
    assert appended == end
    assert sum(following for topic, _, following in table if topic == "t") == 10


def test_slaves_hear_of_what_is_replicable(client, follow):
    following = follow(replicable=True)
    end = send(client, 10)
    following.until(lambda r: r.applied == end)


def test_the_log_of_another_broker_is_left_before_the_engine_receives_it(
    run, client, own_log, tmp_path
):
    # A kill left a run file behind, and another broker's log listens there by now.
    end = send(client, 10)
    with Broker(tmp_path / "other", tmp_path / "other-logs", LOG_ALONE) as other:
        other.start([COMMITLOG])
        ours, theirs = (discovery.read(root, COMMITLOG) for root in (own_log.root, other.root))
        assert ours is not None and theirs is not None
        discovery.write(own_log.root, COMMITLOG, theirs)
        refused: list[int] = []

        def is_ours(generation: int) -> bool:
            if is_listed(RealFiles(own_log.root), generation):
                return True
            refused.append(generation)
            discovery.write(own_log.root, COMMITLOG, ours)
            return False

        following = Following(run, own_log.root, is_ours=is_ours)
        try:
            recorder = following.until(lambda r: r.applied == end)
            assert len(refused) == 1
            assert [one.generation for one in recorder.openings] == [recorder.generation]
            assert recorder.generation not in refused
            assert len(recorder.messages) == 10
        finally:
            following.end()
