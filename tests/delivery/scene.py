"""Brokers with their logs, and the delivery room of each, stepped by hand."""

from itertools import pairwise

from stratamq_delivery.delayed_copies import RECORDS
from stratamq_delivery.delivery import Delivery
from stratamq_delivery.levels import Levels
from stratamq_delivery.rocketmq_files import RocketMQFiles
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.taken_over import TakenOver
from stratamq_delivery.timed_messages import TimedMessages

from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS, clamp_level
from stratamq.formats.frame import Frame
from stratamq.formats.source_item import source_of
from stratamq.formats.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from tests.follow import egg_scene

SEGMENT_BYTES = egg_scene.SEGMENT_BYTES
WAITING = (SCHEDULE_TOPIC, TIMER_TOPIC, RECORDS)
ROLL_MS = 36 * 3_600_000


def never_early(late_ms: int) -> None:
    assert late_ms >= 0, "taken before its time, by the store's clock"


class Service(egg_scene.Service):
    name, path = "delivery", "stratamq/delivery.json"

    def state(self, followed):
        broker = self.broker
        self.taken_over = TakenOver(followed)
        undo = {"undo_bytes": broker.undo_bytes}
        self.levels = Levels(broker.levels_ms, followed, self.taken_over, **undo)
        self.timed = TimedMessages(broker.roll_ms, followed, self.taken_over, **undo)
        for machine in (self.levels, self.timed):
            machine.copies.lateness_ms = never_early
        return Delivery([self.taken_over, self.levels, self.timed], followed)

    def rocketmq_files(self) -> RocketMQFiles:
        store = self.broker.store
        written = (self.followed, store.disk.files(), self.lanes.worker(), store.clock, 100)
        groups = SharedGroups(self.followed)
        files = RocketMQFiles(self.levels.positions, groups, 17, self.appends, *written)
        files.load()
        return files


class Broker(egg_scene.Broker):
    """A log that takes delayed messages, and the room that delivers them."""

    service_type = Service

    def __init__(
        self, seed: int = 0, *, undo_bytes: int = 64 << 20, roll_ms: int = ROLL_MS, **settings
    ) -> None:
        self.undo_bytes = undo_bytes
        self.roll_ms = roll_ms
        self.levels_ms = DEFAULT_DELAY_LEVELS_MS
        super().__init__(seed, **settings)

    def delay(self, body: bytes, level: int, topic: str = "eggs", **fields) -> int:
        """Send a message of this level. Its offset."""
        return self.store.put(body, topic, delay_level=level, **fields).physical_offset

    def deliver(self, body: bytes, at_ms: int, topic: str = "eggs", **fields) -> int:
        """Send a message for this time of the store's clock. Its offset."""
        properties = {"TIMER_DELIVER_MS": str(at_ms), **fields.pop("properties", {})}
        return self.store.put(body, topic, properties=properties, **fields).physical_offset

    def timed(self) -> dict[int, Frame]:
        """The messages that wait or have waited for a time of their own, rolled ones as well."""
        frames = self.store.frames()
        return {one.physical_offset: one for one in frames if one.topic == TIMER_TOPIC}

    def delayed(self) -> dict[int, Frame]:
        frames = self.store.frames()
        return {one.physical_offset: one for one in frames if one.topic == SCHEDULE_TOPIC}

    def due_ms(self, frame: Frame) -> int:
        level = clamp_level(int(frame.properties["DELAY"]), self.levels_ms)
        return frame.store_timestamp_ms + self.levels_ms[level - 1]

    def copies(self) -> dict[int, list[Frame]]:
        return self._about(lambda frame: frame.topic not in WAITING)

    def rolled(self) -> dict[int, list[Frame]]:
        return self._about(lambda frame: frame.topic == TIMER_TOPIC)

    def records(self) -> dict[int, list[Frame]]:
        return self._about(lambda frame: frame.topic == RECORDS)

    def check(self, *, put_back: bool = False) -> None:
        """Each message whose time has come was delivered once and not before its time, and each
        level in order. `put_back`: a wall clock was, perhaps between the moment at which a copy was
        taken and the one at which it was stored: then it has the time of the message before it."""
        delayed, copies, records = self.delayed(), self.copies(), self.records()
        stands_still = {
            frame.physical_offset
            for before, frame in pairwise(self.store.frames())
            if put_back and frame.store_timestamp_ms == before.store_timestamp_ms
        }
        now_ms = self.service.appends.time.now_ms()
        for offset, frame in delayed.items():
            due_ms, mine = self.due_ms(frame), copies.get(offset, [])
            assert len(mine) + len(records.get(offset, [])) == (due_ms <= now_ms), offset
            for copy in mine:
                assert (copy.body, copy.topic) == (frame.body, frame.properties["REAL_TOPIC"])
                assert copy.queue_id == int(frame.properties["REAL_QID"])
                assert copy.store_timestamp_ms >= due_ms or copy.physical_offset in stands_still
        timed, rolled = self.timed(), self.rolled()
        for offset, frame in timed.items():
            due_ms, mine = int(frame.properties["TIMER_DELIVER_MS"]), copies.get(offset, [])
            ends = len(mine) + len(records.get(offset, [])) + len(rolled.get(offset, []))
            assert ends == 1 or (ends == 0 and due_ms > now_ms), offset
            for copy in (*mine, *rolled.get(offset, [])):
                assert copy.body == frame.body
                assert copy.properties["TIMER_DELIVER_MS"] == str(due_ms)
            for copy in mine:
                assert copy.topic == frame.properties["REAL_TOPIC"]
                assert copy.queue_id == int(frame.properties["REAL_QID"])
                assert copy.store_timestamp_ms >= due_ms or copy.physical_offset in stands_still
        assert {*copies, *records, *rolled} <= {*delayed, *timed}
        self.check_order()

    def check_order(self) -> None:
        delayed = self.delayed()
        by_level: dict[int, list[int]] = {}
        for frame in self.store.frames():
            source = source_of(frame.properties_raw)
            if source is not None and source.offset in delayed and frame.topic != RECORDS:
                by_level.setdefault(delayed[source.offset].queue_id, []).append(source.offset)
        for level, offsets in by_level.items():
            assert offsets == sorted(offsets), level
