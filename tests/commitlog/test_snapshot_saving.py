"""Saving the queue table beside the appends, whatever the disk refuses."""

import errno
import random
from collections import deque
from dataclasses import replace

import pytest
from stratamq_commitlog.recovery.own_state import SNAPSHOT_PATH, OwnState
from stratamq_commitlog.upkeep import snapshots
from stratamq_commitlog.upkeep.snapshots import SnapshotSaving
from stratamq_commitlog.write.queue_offsets import QueueOffsets

from stratamq.errors import NotWritableError
from stratamq.files import journal
from stratamq.files.simulated import SimulatedDisk, keep_nothing
from stratamq.store.queue_snapshot import TableSnapshot

EMPTY = TableSnapshot(generation=1, offset=0, frame=None, store_timestamp_ms=0, minimum=0)


class Saving:
    """One process whose worker runs every task at once."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.state = OwnState(disk.files())
        self.state.load()
        self.queues = QueueOffsets({})
        self.state.first_snapshot(EMPTY, self.queues.table)
        self.saving = SnapshotSaving(self.state, self.queues, self.submit, lambda: None)
        self.offset = 0
        self.errors: list[object] = []

    def submit(self, kind, task, done) -> None:
        try:
            task()
        except OSError as error:
            done(None, NotWritableError(str(error), kind))
        else:
            done(None, None)

    def pass_time(self, *names: str) -> None:
        """Messages for some queues, and a snapshot."""
        self.offset += 1
        for name in names:
            self.queues.take((name, 0), 1)
        self.saving.take()
        self.saving.store(replace(EMPTY, offset=self.offset), self.errors.append)


def test_while_no_snapshot_can_be_stored_what_waits_does_not_grow():
    disk = SimulatedDisk()
    saving = Saving(disk)
    saving.pass_time("a", "b")
    fault = disk.fail("*", f"{SNAPSHOT_PATH}*", error=errno.EIO, repeat=True)
    for _ in range(200):
        saving.pass_time("a", "c")
    assert sum(map(len, saving.saving._unsaved)) <= 4
    disk.faults.remove(fault)
    for _ in range(3):
        saving.pass_time("b")
    found = OwnState(disk.image(keep_nothing).files()).load()
    assert found is not None
    assert found.offset == saving.offset
    assert found.queues == saving.queues.table


class SlowSaving(Saving):
    """Its worker runs a task when the test lets it."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.tasks: deque = deque()
        self.taken: dict[int, dict] = {0: {}}
        """The table as it was at each snapshot's offset."""
        self.under_way = False
        self.wholes = 0
        super().__init__(disk)

    def submit(self, kind, task, done) -> None:
        self.tasks.append((kind, task, done))

    def run_one(self) -> None:
        super().submit(*self.tasks.popleft())

    def snapshot(self) -> None:
        """One at a time, as the engine has it."""
        if self.under_way:
            return
        self.offset += 1
        self.saving.take()
        self.taken[self.offset] = dict(self.queues.table)
        self.under_way = self.saving.store(replace(EMPTY, offset=self.offset), self._stored)

    def _stored(self, error) -> None:
        self.under_way = False
        self.errors.append(error)

    def check(self) -> None:
        """What a start would find now is the table of the position that it names."""
        found = OwnState(self.disk.image(keep_nothing).files()).load()
        assert found is not None
        assert found.queues == self.taken[found.offset]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_snapshot_has_the_entries_of_its_position_whenever_the_table_is_written(
    monkeypatch, seed, fails
):
    """Whatever changes, and is saved, between the steps of writing the whole table."""
    monkeypatch.setattr(snapshots, "ENTRIES_PER_STEP", 3)
    monkeypatch.setattr(journal, "_SLACK_BYTES", 0)
    chance, disk = random.Random(seed), SimulatedDisk(seed=seed)
    saving = SlowSaving(disk)
    for step in range(500):
        for _ in range(chance.randrange(3)):
            saving.queues.take((f"topic-{chance.randrange(step // 20 + 1)}", 0), 1)
        if chance.random() < 0.4:
            saving.snapshot()
        if fails and chance.random() < 0.03:
            disk.fail("write", f"{SNAPSHOT_PATH}*", error=errno.EIO)
        if saving.tasks and chance.random() < 0.8:
            saving.wholes += saving.tasks[0][0] == "snapshot-whole"
            saving.run_one()
            saving.check()
    assert saving.wholes > 20
    assert saving.errors.count(None) > 50


def test_what_has_been_saved_is_emptied_by_the_worker_and_not_dropped_on_the_loop():
    saving = SlowSaving(SimulatedDisk())
    saving.queues.take(("a", 0), 1)
    gathered = saving.queues.changed
    saving.snapshot()
    saving.run_one()
    assert gathered == {("a", 0): 1}
    saving.queues.take(("b", 0), 1)
    saving.snapshot()
    assert gathered == {("a", 0): 1}
    saving.run_one()
    assert gathered == {}
    saving.check()
