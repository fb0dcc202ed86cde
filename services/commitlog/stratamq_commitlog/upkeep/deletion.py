"""Whole segments leave the log, oldest first; their files are unlinked once they have no reader.

delete_below ──► out of the log, new minimum ──► every follower has released it, or its time is
over ──► the new minimum is durable ──► the cache is emptied in slices ──► the file is unlinked
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stratamq.errors import StrataError
from stratamq.files.port import Clock
from stratamq.formats.file_names import offset_name
from stratamq_commitlog.log_state import LogOffsets
from stratamq_commitlog.replica.follow_hub import FollowHub
from stratamq_commitlog.upkeep.jobs import Jobs
from stratamq_commitlog.upkeep.snapshots import Snapshots
from stratamq_commitlog.write.segment_set import DIRECTORY, SegmentSet
from stratamq_commitlog.write.write_gate import WriteGate

LEAST_SLICE_BYTES = 16 << 20
"""One or two milliseconds' work."""
SPREAD_TICKS = 100
"""A tick takes this part of all that waits, ten seconds' worth of a driver's ticks: the more waits
the faster it goes, and a log that is filled at full speed does not outrun it."""


def slice_bytes(waiting_bytes: int, *, refusing: bool) -> int:
    """How fast the files of deleted segments go, so that no append waits for it.

    The kernel frees what it has cached of a file while it unlinks it: a third of a second of
    one core for 1 GiB, and longer where every freed block is reported to the device (`mount -o
    discard`). Appends queue up behind that. So the cache is emptied first, a slice at each
    tick, and the unlink has little left to do. `drop_cache` changes no byte, and leaves alone
    what another process has mapped.

    How much of the cache is emptied in one tick while so much waits to be unlinked. `refusing`:
    the disk is so full that writes are refused. Then room comes first: there is no append to be
    spared.
    """
    if refusing:
        return waiting_bytes
    return max(LEAST_SLICE_BYTES, waiting_bytes // SPREAD_TICKS)


def unlink_step(segments: SegmentSet, base: int, position: int, length: int) -> None:
    """Blocking: empty a slice of the cache; with the last one unlink the file, for good. OSError.

    A slice that is the whole file is not emptied first: the unlink does that.
    """
    size = segments.segment_bytes
    if position < size and length < size:
        segments.drop_cache(base, position, min(length, size - position))
    if position + length >= size:
        segments.unlink(base)


@dataclass(slots=True)
class _Removed:
    """A segment that is out of the log and waits to be unlinked."""

    base: int
    deadline_ns: int
    emptied: int = 0
    """Up to this position its pages have been taken out of the cache."""


class SegmentDeletion:
    """Deletes segments of one open log. `followers`: their durable positions hold segments back."""

    def __init__(
        self,
        segments: SegmentSet,
        offsets: LogOffsets,
        hub: FollowHub,
        snapshots: Snapshots,
        gate: WriteGate,
        jobs: Jobs,
        clock: Clock,
        *,
        followers: Sequence[str],
        release_timeout_ms: int,
    ) -> None:
        self._segments = segments
        self._offsets = offsets
        self._hub = hub
        self._snapshots = snapshots
        self._gate = gate
        self._jobs = jobs
        self._clock = clock
        self._followers = followers
        self._release_timeout_ns = release_timeout_ms * 1_000_000
        self._removed: list[_Removed] = []

    @property
    def unlinking(self) -> bool:
        """Files of deleted segments are still there."""
        return bool(self._removed)

    def delete_below(self, offset: int, max_segments: int, urgent: bool) -> tuple[int, list[str]]:
        """Take segments that end at or below `offset` out of the log, never the last one; without
        `urgent` only what every follower has on its disk. The new minimum, and their paths."""
        segments, offsets = self._segments, self._offsets
        # Nothing else records the next offsets of the queues of what is deleted: after a crash
        # they would be counted from a wrong one.
        limit = min(offset, offsets.flushed, self._snapshots.needed_from)
        if not urgent:
            limit = min([limit, *(self._durable_of(name) for name in self._followers)])
        count = 0
        while (
            count < min(len(segments.offsets) - 1, max_segments)
            and segments.offsets[count] + segments.segment_bytes <= limit
        ):
            count += 1
        deadline_ns = self._clock.monotonic_ns() + self._release_timeout_ns
        removed = segments.remove_first(count)
        self._removed += [_Removed(base, deadline_ns) for base in removed]
        offsets.minimum = segments.minimum
        if removed:
            self._hub.moved()
        return offsets.minimum, [f"{DIRECTORY}/{offset_name(base)}" for base in removed]

    def _durable_of(self, follower: str) -> int:
        state = self._hub.followers.get(follower)
        return 0 if state is None else state.durable

    def tick(self, now_ns: int) -> None:
        """Go one slice further with the file of the oldest deleted segment."""
        if not self._removed or self._jobs.is_running("unlink"):
            return
        first, size = self._removed[0], self._segments.segment_bytes
        end = first.base + size
        if not self._hub.released_by_all(end) and now_ns < first.deadline_ns:
            return
        if not self._snapshots.minimum_is_durable(end):
            # A start reads from it what was deleted, should an unlink not have reached the disk.
            self._snapshots.store_minimum()
            return
        position = first.emptied
        length = slice_bytes(len(self._removed) * size, refusing=self._gate.disk_full)
        first.emptied += length
        is_last = first.emptied >= size

        def done(_: None, error: StrataError | None) -> None:
            if is_last and error is None:
                self._removed.pop(0)

        segments = self._segments
        self._jobs.submit(
            "unlink", lambda: unlink_step(segments, first.base, position, length), done
        )

    def close(self) -> None:
        """Blocking: unlink what waits. OSError."""
        for removed in self._removed:
            self._segments.unlink(removed.base)
        self._removed.clear()
