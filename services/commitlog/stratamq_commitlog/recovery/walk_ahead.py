"""Segments walked elsewhere, ahead of recovery: every segment begins at the start of a frame.

Only the queues tie a segment to those before it: its messages have the QUEUEOFFSETs that follow
theirs. So a walk without what comes before finds where each queue begins in its
segment, and `join` takes its result if that is where the queues stand. Wherever they do
not fit, and wherever a walk elsewhere came to no end, recovery walks the segment itself: it never
decides by anything but what its own walk would have found.

A walk elsewhere changes nothing. What it accepted is written again by recovery alone, which holds
the store's lock, and only where it reads the very bytes that were accepted.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

from isal import isal_zlib

from stratamq.files.port import File, Files
from stratamq.formats.frame_layout import BLANK, MAGIC_V1, MAGIC_V2
from stratamq_commitlog.recovery.log_walk import SURVEYED, SegmentWalk, Strictness, Walked
from stratamq_commitlog.recovery.recovery_cases import WalkCase


@dataclass(frozen=True, slots=True)
class Task:
    """One segment, walked from its beginning, nothing being known of its queues."""

    path: str
    base: int
    strictness: Strictness
    """Its `known` is empty: which queues must go on where they stood is decided by `join`."""
    next_exists: bool
    pieces: bool
    """What is accepted will be written again."""


@dataclass(frozen=True, slots=True)
class WalkedSegment:
    """What the walk of one segment found: columns of nothing, tails of queues only."""

    base: int
    case: WalkCase
    walked: Walked
    pieces: tuple[tuple[int, int, int], ...] = ()
    """(position, length, CRC-32) of the accepted bytes, in order, as the walk had them."""


class Walkers(Protocol):
    """Who walks ahead. One recovery at a time; `take` is asked in the order of the tasks."""

    least_bytes: int
    """With less to walk their start would cost more than they save."""
    count: int
    """How many walk beside recovery, which walks its share itself."""

    def begin(self, tasks: Sequence[Task]) -> None:
        """Start. Never an error: what cannot be walked there is not taken."""

    def take(self, base: int) -> WalkedSegment | None:
        """Wait for this segment's result; None: it was not walked, or its walk failed."""

    def close(self) -> None:
        """End whatever still walks. Nothing is left behind."""


def carry_out(files: Files, task: Task) -> WalkedSegment:
    """Walk one segment, as recovery would with an empty table of queues. OSError."""
    walked = Walked(task.base, {}, firsts={})
    pieces: list[tuple[int, int, int]] = []

    def note(position: int, data: bytes) -> None:
        pieces.append((position, len(data), isal_zlib.crc32(data)))

    with closing(files.open(task.path)) as file:
        walk = SegmentWalk(file, task.base, walked, task.strictness, task.next_exists)
        while (case := walk.step(note if task.pieces else None)) is None:
            pass
    return WalkedSegment(task.base, case, walked, tuple(pieces))


def join(walked: Walked, found: WalkedSegment, strictness: Strictness) -> bool:
    """Go on with what was found, as if the walk itself had gone through this segment.

    False, and nothing is known that was not, where it might have ended at a queue that does not
    continue where it stood: only the walk itself finds at which frame.
    """
    there = found.walked
    firsts, queues = there.firsts, walked.queues
    if walked.end != found.base or firsts is None:
        return False
    jumps = [key for key, first in firsts.items() if queues.get(key, first) != first]
    if strictness.durable is not None and (
        there.queue_jumps or any(key in strictness.known for key in jumps)
    ):
        return False
    walked.end = there.end
    walked.queues.update(there.queues)
    walked.last_frame = there.last_frame or walked.last_frame
    walked.store_timestamp_ms = max(walked.store_timestamp_ms, there.store_timestamp_ms)
    walked.frames += there.frames
    walked.version2_frames += there.version2_frames
    walked.queue_jumps += there.queue_jumps + len(jumps)
    return True


def write_again(file: File, found: WalkedSegment) -> bool:
    """Make dirty what was accepted. False where the file does not read as it did then. OSError."""
    for position, length, checksum in found.pieces:
        data = file.read(position, length)
        if len(data) != length or isal_zlib.crc32(data) != checksum:
            return False
        file.write(position, data)
    return True


def plan(
    files: Files,
    paths: Mapping[int, str],
    segment_bytes: int,
    walk: tuple[int, Strictness],
    *,
    pieces: bool,
    least_bytes: int,
    others: int,
) -> list[Task]:
    """What others may do of a recovery that visits these segments, by where they begin, in order:
    it surveys those in front of an offset, and walks from there on by that strictness.

    Nothing if there is less than `least_bytes` to walk. Segments go round in turn: the first, which
    is done when the others have started, and then one of so many are recovery's own. In those at
    the end to which nothing was written there is nothing to find.
    """
    bases = list(paths)
    offset, strictness = walk
    while bases and not _begins(files, paths[bases[-1]]):
        bases.pop()
    if len(bases) < 2:
        return []
    begins = bases[0] if offset >= bases[0] + segment_bytes else max(offset, bases[0])
    if bases[-1] - begins < least_bytes:
        return []
    alone = replace(strictness, known=frozenset())
    return [
        Task(paths[base], base, SURVEYED, True, pieces=False)
        if base < offset
        else Task(paths[base], base, alone, base + segment_bytes in paths, pieces)
        for number, base in enumerate(bases)
        if number % (others + 1)
    ]


def _begins(files: Files, path: str) -> bool:
    """Whether a frame seems to begin the segment. Recovery reports what cannot be read."""
    try:
        file = files.open(path)
    except OSError:
        return False
    try:
        head = file.read(0, BLANK.size)
    except OSError:
        return False
    finally:
        file.close()
    return len(head) == BLANK.size and BLANK.unpack(head)[1] in (MAGIC_V1, MAGIC_V2)
