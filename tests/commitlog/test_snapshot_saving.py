"""Saving the queue table beside the appends, whatever the disk refuses."""

import errno
from dataclasses import replace

from stratamq_commitlog.own_state import SNAPSHOT_PATH, OwnState, Snapshot
from stratamq_commitlog.queue_offsets import QueueOffsets
from stratamq_commitlog.snapshot_saving import SnapshotSaving

from stratamq.errors import NotWritableError
from stratamq.files.simulated import SimulatedDisk, keep_nothing

EMPTY = Snapshot(generation=1, offset=0, frame=None, store_timestamp_ms=0, minimum=0)


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
