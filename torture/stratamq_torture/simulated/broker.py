"""A whole broker in one process: the real engines on a simulated disk, with everything that can
happen to them: steps, stops, deaths, power losses. What it must mean is `checks`' business.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from stratamq_commitlog.engine import CommitLog

from stratamq.files.simulated import (
    CrashChoice,
    CrashItem,
    SimulatedCrash,
    random_choice,
)
from stratamq.files.simulated_inode import Inode
from stratamq.files.simulated_tree import Directory
from stratamq.formats.index_columns import item_records
from stratamq.formats.index_layout import index_file_bytes
from stratamq.formats.queue_unit import PRE_BLANK_SIZE
from stratamq.formats.queue_units import decode_units
from stratamq_torture.simulated.consumers import Consumers
from stratamq_torture.simulated.following import Connection
from stratamq_torture.simulated.model import Grade
from stratamq_torture.simulated.producers import Producers
from stratamq_torture.simulated.rooms import (
    COMMITLOG,
    DISPATCHER,
    INDEX,
    FollowerRoom,
    LogRoom,
    Room,
)
from stratamq_torture.simulated.world import BrokerSettings, PowerLoss, Situation, Sizes, World
from stratamq_torture.trial import Violation

TICK_MS = 100
SETTLE_STEPS = 8_000
SETTLED_TICKS = 3

Check = Callable[["Broker"], None]


class Broker(World):
    """The world with the three processes, their producers and consumers in it.

    `on_log_started` is called after each start of the log, before anything else happens.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        chance: random.Random,
        notes: list[str] | None,
        *,
        sizes: Sizes,
        audits: bool,
    ) -> None:
        super().__init__(settings, chance, notes)
        self.on_log_started: Check | None = None
        self.audits = audits
        """Whether invariants are looked at that no consumer would notice at once."""
        self.flushed = 0
        """What the log has reported as durable, at its last end or start."""
        self.log = LogRoom(self, self)
        self.dispatcher = FollowerRoom(self, self, DISPATCHER)
        self.index = FollowerRoom(self, self, INDEX)
        self.followers = [self.dispatcher, self.index]
        self.rooms: dict[str, Any] = {room.name: room for room in (self.log, *self.followers)}
        self.connections = {room.name: Connection(self, self.log, room) for room in self.followers}
        self.producers = Producers(self, self.log, sizes)
        self.consumers = Consumers(self, self.dispatcher, self.index)
        self.crash_means_power = False
        """What a planned crash point is: the end of the process that meets it, or of all power."""
        self.power_choice: CrashChoice | None = None
        """What survives a planned loss of power; None: chance decides."""
        self.unsure_queues = False
        """RocketMQ left the queues as it does, or messages were deleted before they were
        dispatched, and the dispatcher has not been through the queues since."""
        self.log_starts = 0

    # --- starts and ends ---

    def start(self, name: str) -> bool:
        """Start one room, if it is not running. False when it died on the way or refused."""
        room = self.rooms[name]
        if room.running:
            return True
        if room is self.log and any(path.failed for path in self.disk.under(COMMITLOG)):
            self.met(Situation.RESTART_ON_FAILED_PAGES)
        try:
            if not room.start():
                return False
        except SimulatedCrash:
            if room is self.log and room.files is not None and room.files.name in self.disk.synced:
                power = self.crash_means_power
                self.met(Situation.POWER_IN_RECOVERY if power else Situation.KILLED_IN_RECOVERY)
            self._died(room)
            return False
        self.note(f"{name} is up")
        if room is self.log:
            self.log_starts += 1
            if self.on_log_started is not None:
                self.on_log_started(self)
        self._note_start(room)
        return True

    def _note_start(self, room: Room) -> None:
        engine = self.log.engine
        others = [
            each for each in self.followers if each.engine and each.engine.followed.applied > 0
        ]
        if room is self.log and others:
            self.met(Situation.LOG_ALONE)
        if room is not self.log and room.starts > 1 and engine and engine.offsets.appended > 0:
            self.met(Situation.FOLLOWER_ALONE)

    def kill(self, name: str) -> None:
        room = self.rooms[name]
        if room.running:
            self.kills += 1
            self._end(room)

    def power_loss(self, choice: CrashChoice | None = None) -> None:
        """Every process dies; of what was not synced a part survives."""
        self.power_losses += 1
        self._remember_flushed()
        for room in self.rooms.values():
            self._end(room, cache_survives=False)
        before = PowerLoss(self.disk)
        choose = choice or random_choice(self.chance)

        def noted(item: CrashItem) -> bool | int:
            kept = choose(item)
            if kept not in (True, False, 0, 0xFF) and item.path.startswith(COMMITLOG):
                self.met(Situation.TORN_PAGE)
            return kept

        self.disk.crash(noted)
        for situation in before.changed():
            self.met(situation)
        self.model.torn = True
        self.cache_lies = False

    def _end(self, room: Room, *, cache_survives: bool = True) -> None:
        if room is self.log:
            self._remember_flushed()
        if room is self.dispatcher:
            self._look_at_queues()
        if room is not self.log and room.running:
            self.audit()
        room.die()
        self.uncut.discard(room.name)
        if room is self.log:
            for connection in self.connections.values():
                if cache_survives:
                    connection.break_off(self.chance)
                else:
                    connection.leave()
        elif room.name in self.connections:
            self.connections[room.name].leave()

    def _remember_flushed(self) -> None:
        """Bytes below *flushed* are durable: the log has reported it."""
        engine = self.log.engine
        if engine is not None:
            self._note_end(engine)
            self.flushed = engine.offsets.flushed
            if not self.cache_lies:
                self.model.claim(self.flushed, Grade.DURABLE)

    def _note_end(self, engine: CommitLog) -> None:
        if engine.commit.failure is not None:
            self.met(Situation.FLUSH_FAILED)
        if engine.segments.allocation_error is not None:
            self.met(Situation.DISK_FULL)

    def audit(self) -> None:
        """A follower ends: its files hold nothing above what the log has flushed."""
        engine = self.log.engine
        flushed = engine.offsets.flushed if engine is not None else self.flushed
        if self.audits and not self.unsure_queues:
            check_below_flushed(self, flushed)

    def _look_at_queues(self) -> None:
        """Queues are sure again once the dispatcher's state of them is on the disk."""
        engine = self.dispatcher.engine
        if engine is None or engine.followed.minimum < self.model.deleted_below:
            return
        if engine.is_settled:
            self.unsure_queues = False

    def ended(self, room: Room, error: BaseException) -> None:
        """A process ended by an error."""
        self.note(f"{room.name} ends: {error!r}")
        self._end(room)

    def _died(self, room: Room) -> None:
        """A process met a planned crash point."""
        self.crash_points += 1
        if self.crash_means_power:
            self.note(f"the power fails while {room.name} works")
            self.power_loss(self.power_choice)
        else:
            self.note(f"{room.name} dies at a crash point")
            self.kills += 1
            self._end(room)

    def leaves(self, room: FollowerRoom) -> None:
        """It follows the log no more: it stops."""
        self.connections[room.name].leave()

    def end_streams(self) -> None:
        """The log ends all streams: it stops."""
        for connection in self.connections.values():
            connection.end()

    def log_closed(self, engine: CommitLog, *, clean: bool) -> None:
        """The log's process has stopped in order."""
        self._note_end(engine)
        self.flushed = engine.offsets.flushed
        if clean:
            self.model.claim(engine.offsets.appended, Grade.DURABLE)
        self.note(f"the log stopped at {engine.offsets.appended}")

    # --- steps ---

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """One of the things that could happen next, by chance; time passes when nothing does."""
        ready = list(self._ready())
        if not ready or self.chance.random() < 0.05:
            ready = [(None, self.tick)]
        room, action = self.chance.choice(ready)
        self.act(room, action)

    def act(self, room: Room | None, action: Callable[[], object]) -> str:
        """Do something, and what it was in words; SimulatedCrash is the end of the process that met
        it."""
        try:
            return str(action() or "")
        except SimulatedCrash:
            dead = next((r for r in self.rooms.values() if r.has_died), room)
            assert dead is not None
            self._died(dead)
            return ""

    def _ready(self) -> Iterator[tuple[Room | None, Callable[[], object]]]:
        for room in self.rooms.values():
            if room.engine is None:
                continue
            if room.scheduler.pending:
                yield room, room.work
            if room.stopping:
                yield room, room.stop_step
        if self.log.engine is not None and self.log.woken:
            yield self.log, self.log.run_pass
        for room in self.followers:
            for step in self.connections[room.name].steps():
                yield room, step

    def tick(self) -> None:
        """A moment passes, and every room looks at its clock."""
        self.clock.advance_ms(self.chance.choice((TICK_MS, TICK_MS, 10 * TICK_MS)))
        for room in (self.log, self.dispatcher, self.index):
            if room.engine is not None:
                self.act(room, room.tick)

    def settle(self) -> bool:
        """Let things run until nothing is left to do. False if that does not come."""
        quiet = 0
        for _ in range(SETTLE_STEPS):
            ready = list(self._ready())
            if any(action != getattr(room, "stop_step", None) for room, action in ready):
                quiet = 0
                self.act(*self.chance.choice(ready))
                continue
            for room, action in ready:
                self.act(room, action)
            self.act(None, self.tick)
            quiet += 1
            if quiet > SETTLED_TICKS and self.is_quiet:
                return True
        return False

    @property
    def is_quiet(self) -> bool:
        """Every running follower has received, applied and made durable all there is."""
        engine = self.log.engine
        if engine is None or engine.offsets.appended != engine.offsets.flushed:
            return False
        end = engine.offsets.confirmed
        return all(
            room.engine is None
            or (
                self.connections[room.name].idle
                and room.engine.fold.report().applied == end
                and room.engine.fold.report().durable == end
            )
            for room in self.followers
        )

    # --- the disk and the kernel ---

    def lose_unsynced(self) -> None:
        """Write-back of the log fails while no process has its files open, here or there or wholly,
        and the pages are dropped: the disk's bytes show, and no process receives an error."""
        likely = self.chance.choice((0.5, 1))
        for inode in self.disk.under(COMMITLOG):
            dirty = inode.dirty_pages()
            inode.fail_pages([page for page in dirty if self.chance.random() < likely])
        self.evict(all_pages=True)

    def evict(self, *, all_pages: bool = False) -> int:
        """The kernel drops clean pages; how many showed something else before."""
        changed = self.disk.evict(None if all_pages else self.chance)
        if any(path.startswith(COMMITLOG) for path, _ in changed):
            self.cache_lies = True
            self.model.torn = True
            self.met(Situation.EVICTED_FAILED)
        return len(changed)


# --- what no consumer would notice at once ---


def check_below_flushed(world: World, flushed: int) -> None:
    """Every unit and every item belongs to a message below `flushed`: the next program that opens
    the directory, perhaps RocketMQ, relies on it."""
    tree = world.disk.tree
    for topic, below in _entries(tree.find("consumequeue")):
        for queue_id, files in _entries(below):
            for name, node in _entries(files):
                if isinstance(node, Inode) and _reach(node) > flushed:
                    where = f"consumequeue/{topic}/{queue_id}/{name}"
                    raise Violation("ahead", f"{where} reaches to {_reach(node)}, above {flushed}")
    settings = world.settings.index
    slots, items = settings.index_slots or 0, settings.index_items or 0
    for name, node in _entries(tree.find("index")):
        if isinstance(node, Inode) and node.size == index_file_bytes(slots, items):
            offsets = item_records(bytes(node.cache), slots, 1, items)["physical_offset"]
            if len(offsets) and int(offsets.max()) >= flushed > 0:
                raise Violation("ahead", f"index/{name} holds {offsets.max()}, above {flushed}")


def _entries(node: object) -> list[tuple[str, object]]:
    return sorted(node.entries.items()) if isinstance(node, Directory) else []


def _reach(node: Inode) -> int:
    units = decode_units(bytes(node.cache))
    size = units["size"].astype(np.int64)
    ends = np.where(size == PRE_BLANK_SIZE, 0, units["physical_offset"].astype(np.int64) + size)
    return int(ends.max()) if len(ends) else 0
