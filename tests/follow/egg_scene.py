"""Brokers with their logs, and the egg timer of each, stepped by hand: real engines on simulated
disks, and between a service and its log a wire that may hold up what was sent."""

import random
import sys
from pathlib import Path

from stratamq_commitlog.recovery.cut_file import CutOrder
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_torture.deliveries.service import Wire

from stratamq.files.simulated import SimulatedScheduler
from stratamq.follow.fold import Fold, FoldPlace, SnapshotFile
from stratamq.follow.own_appends import AppendLimits, OwnAppends, OwnBatch, is_final
from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.frame import Blank, Frame
from stratamq.formats.hosts import encode_host
from stratamq.formats.log_state import Role
from stratamq.formats.source_item import source_of
from tests.support.logs import BORN, Store

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
sys.path.append(str(EXAMPLES))
from stratamq_egg_timer.eggs import AT, RECORDS, REQUESTS, TO, Eggs  # noqa: E402

SEGMENT_BYTES = 1 << 14
SHAPE = FrameShape(encode_host(BORN))


class Service:
    """One start of a service that appends: here, of the egg timer."""

    name, path = "egg_timer", "stratamq/egg-timer.json"

    def state(self, followed: FoldPlace):
        """What is both state and author."""
        return Eggs(followed)

    def __init__(self, broker: "Broker") -> None:
        self.broker, store = broker, broker.store
        self.lanes = SimulatedScheduler(random.Random(1))
        files = store.disk.files()
        self.followed = FoldPlace()
        self.author = self.state(self.followed)
        self.file = SnapshotFile(
            self.path,
            self.author,
            self.followed,
            files,
            self.lanes.worker(),
            store.clock,
            100,
        )
        self.file.load()
        self.appends = OwnAppends(self.name, self.author, self.followed, store.clock)
        self.fold = Fold(self.name, self.file, self.followed, files, step_messages=3)
        self.session = None
        self.wire: Wire | None = None

    def follow(self, events: int = 1 << 30) -> None:
        """Take so many events of the log; connect first if the stream has ended."""
        hub = self.broker.store.log.hub
        if self.session is None or self.session.ended:
            generation, position = self.fold.resume_point()
            opened, self.session = hub.open(
                self.name,
                replicable=False,
                generation=generation,
                position=position,
                wake=lambda: None,
            )
            self.fold.opened(opened)
        while events > 0 and (event := self.session.next()) is not None:
            list(self.fold.apply(event))
            events -= 1

    def open(self) -> None:
        """Open an append stream, if there is none."""
        if self.wire is None and self.appends.may_open:
            log = self.broker.store.log
            wire = Wire(log, self.appends.opening(), self.broker.newest)
            if wire.is_open:
                self.wire = wire
                limits = AppendLimits(SHAPE, SEGMENT_BYTES - 8, 64, sync_flush=log.sync_flush)
                now_ms = log.store_clock.wall_ms()
                self.appends.opened(limits, log.offsets.appended, now_ms)

    def send(self) -> OwnBatch | None:
        """Give the wire what goes out next."""
        if self.wire is None:
            return None
        self.appends.time.learn(self.broker.store.log.store_clock.wall_ms())
        batch = self.appends.next()
        if batch is not None:
            self.wire.sent.append(batch)
        return batch

    def receive(self) -> None:
        """Take the answers; leave a stream that is over, and what was sent on it."""
        if self.wire is None:
            return
        while self.wire.answers:
            result = self.wire.answers.popleft()
            self.appends.answered(result.status, result.error)
        if self.appends.is_over:
            self.hang_up()

    def hang_up(self) -> None:
        """The connection breaks; the log may read later what is on the wire."""
        if self.wire is not None:
            self.broker.late.append(self.wire)
            self.wire = None
            self.appends.ended()

    def save(self) -> None:
        self.broker.store.clock.advance_ms(100)
        self.file.tick()
        self.lanes.run_until_idle()

    def settle(self) -> None:
        """Until nothing moves, or the log takes nothing for now; the clock stands still."""
        for _ in range(200):
            self.follow()
            self.open()
            batch = self.send()
            while self.wire is not None and self.wire.sent:
                self.wire.read()
            self.broker.store.settle()
            answered = self.wire is not None and bool(self.wire.answers)
            was_open = self.wire is not None
            self.receive()
            refusal = self.appends.refusal
            if refusal and not is_final(refusal):
                return
            hung_up = was_open and self.wire is None
            if batch is None and not answered and not hung_up:
                return
        raise AssertionError(f"{self.name} does not come to rest")


class Broker:
    """A log, its disk, and the service that runs beside it."""

    service_type = Service

    def __init__(self, seed: int = 0, **settings) -> None:
        settings = {"clock_jump_limit_ms": 3_600_000, **settings}
        self.store = Store(SEGMENT_BYTES, seed=seed, **settings)
        self.store.start()
        self.newest: list[Wire] = []
        self.late: list[Wire] = []
        """Streams that were left, and may still have something on the wire."""
        self.service = self.service_type(self)

    @property
    def is_master(self) -> bool:
        return self.store.log.role is not Role.SLAVE

    def ask(self, body: bytes, due_ms: int, target: str = "eggs") -> int:
        """A message that names a target and a time. Its offset."""
        properties = {TO: target, AT: str(due_ms), "KEYS": "k"}
        return self.store.put(body, REQUESTS, properties=properties).physical_offset

    def kill_service(self) -> None:
        """What it has sent stays on the wire."""
        if self.service.wire is not None:
            self.late.append(self.service.wire)
        self.service.lanes.discard()
        self.service = self.service_type(self)

    def restart_log(self, power: random.Random | None = None) -> None:
        """Both processes are killed, or lose the disk's power."""
        self.service.lanes.discard()
        if power is None:
            self.store.kill()
        else:
            self.store.power_loss(power)
        self.store.start()
        self.newest, self.late = [], []
        self.service = self.service_type(self)

    def set_role(self, change: RoleChange) -> None:
        answers: list = []
        self.store.log.set_role(change, answers.append)
        self.store.settle()
        assert answers == [None], answers

    def cut(self, offset: int, generations) -> None:
        answers: list = []
        cut = CutOrder(offset, False, tuple(generations), self.store.log.offsets.confirmed)
        self.store.log.cut(cut, answers.append)
        self.store.settle()
        assert answers[0].error is None, answers
        if answers[0].reopen:
            self.store.log.close()
            self.store.log.open()
            self.newest, self.late = [], []

    def take_from(self, master: "Broker") -> None:
        """A slave is cut to the master's history, and gets what it lacks."""
        mine, theirs = self.store.frame_bytes(), master.store.members()
        common, at = 0, 0
        for offset, raw, value in theirs:
            if isinstance(value, Frame):
                if at >= len(mine) or mine[at] != raw:
                    break
                at += 1
            common = offset + (value.length if isinstance(value, Blank) else len(raw))
        common = min(common, self.store.end())
        state = master.store.log.state
        self.cut(common, state.generations)
        segments = master.store.segments()
        for offset, raw, value in theirs:
            if offset < common:
                continue
            base = offset // SEGMENT_BYTES * SEGMENT_BYTES
            size = value.length if isinstance(value, Blank) else len(raw)
            data = segments[base][offset - base : offset - base + size]
            error = self.store.append_data(offset, data, master.store.log.offsets.confirmed)
            assert error is None, error

    # --- what the log holds ---

    def requests(self) -> dict[int, Frame]:
        return {one.physical_offset: one for one in self.store.frames() if one.topic == REQUESTS}

    def copies(self) -> dict[int, list[Frame]]:
        """By the offset of their source."""
        return self._about(lambda frame: frame.topic not in (REQUESTS, RECORDS))

    def records(self) -> dict[int, list[Frame]]:
        return self._about(lambda frame: frame.topic == RECORDS)

    def _about(self, wanted) -> dict[int, list[Frame]]:
        found: dict[int, list[Frame]] = {}
        for frame in filter(wanted, self.store.frames()):
            source = source_of(frame.properties_raw)
            if source is not None:
                found.setdefault(source.offset, []).append(frame)
        return found

    def check(self) -> None:
        """Each message whose time has come was delivered once, not before its time, and has one
        record."""
        requests, copies, records = self.requests(), self.copies(), self.records()
        now_ms = self.service.appends.time.now_ms()
        for offset, frame in requests.items():
            due_ms = int(frame.properties[AT])
            mine = copies.get(offset, [])
            assert len(mine) == (due_ms <= now_ms), (offset, due_ms - now_ms, len(mine))
            assert len(records.get(offset, [])) == len(mine)
            for copy in mine:
                assert (copy.body, copy.topic) == (frame.body, frame.properties[TO])
                assert copy.store_timestamp_ms >= due_ms
                assert TO not in copy.properties and copy.properties["KEYS"] == "k"
        assert {*copies, *records} <= {*requests}
