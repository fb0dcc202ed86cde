"""The segment files of a log, and parts of them that can be read independently.

A part is named by bytes: it holds the frames that *begin* in it. No segment has to be read to
divide it, because a frame states its own offset (`formats.log_damage`).
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.files.real import RealFiles
from stratamq.formats.file_names import parse_offset_name
from stratamq.formats.frame_layout import BLANK
from stratamq.formats.frame_scan import SEGMENT_HEAD_BYTES, first_store_time
from stratamq.formats.frame_verify import NOWHERE
from stratamq.formats.log_damage import examine
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.store.confirmed import confirmed_end, is_ours
from stratamq.store.sealed import sealed_from

LAST_SEGMENTS = 3
"""In an untrusted directory this many segments are searched for the log's end, as RocketMQ's
recovery does."""
_WALK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A file of the log: `start` is the log offset of its first byte."""

    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """The frames of one segment that begin at log offsets [begin, end). Can be pickled."""

    path: str
    segment_start: int
    segment_end: int
    begin: int
    end: int
    sealed_from: int = NOWHERE
    """From this log offset on every record has a checksum of its own."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Segments in order, and the log offset `end` at which the log ends for readers."""

    segments: tuple[LogSegment, ...]
    end: int
    root: str | None = None
    """The store's directory, when the log was found in one."""
    sealed_from: int = NOWHERE
    """From this log offset on every record has a checksum of its own."""

    @property
    def minimum(self) -> int:
        return self.segments[0].start if self.segments else self.end

    def parts(
        self, begin: int = 0, end: int | None = None, part_bytes: int = 0
    ) -> list[SegmentPart]:
        """What covers [begin, end), in pieces of at most `part_bytes`; 0: a segment each."""
        end = self.end if end is None else min(end, self.end)
        parts = []
        for segment in self.segments:
            low, high = max(begin, segment.start), min(end, segment.end)
            if low >= high:
                continue
            count = -(-(high - low) // part_bytes) if part_bytes else 1
            step = -(-(high - low) // count)
            parts += [
                SegmentPart(
                    segment.path,
                    segment.start,
                    segment.end,
                    at,
                    min(at + step, high),
                    self.sealed_from,
                )
                for at in range(low, high, step)
            ]
        return parts

    def within(self, since_ms: int | None, until_ms: int | None) -> tuple[int, int]:
        """Log offsets outside of which no message was stored at since ≤ time < until.

        Store times never go back in a log, so that the first one of each segment decides.
        """
        begin, end = self.minimum, self.end
        for segment in self.segments:
            first_ms = _first_store_time(segment)
            if first_ms is None:
                continue
            if since_ms is not None and first_ms < since_ms:
                begin = max(begin, segment.start)
            if until_ms is not None and first_ms >= until_ms:
                end = min(end, segment.start)
        return begin, max(begin, end)


def open_log(
    where: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], known: int = 0
) -> LogFiles:
    """The log in a store's directory, in its `commitlog`, or in a list of segment files.

    Of a store that is ours and that no other program has held since, it ends where the log service
    has confirmed; of any other at the first frame that fails. Up to the frame's beginning `known`
    it has been looked at before. NotFoundError when there is no log.
    """
    if isinstance(where, str | os.PathLike):
        path = Path(where)
        if not path.exists():
            raise NotFoundError(f"there is no {path}")
        if path.is_dir():
            return _directory(path, known)
        where = [path]
    segments = tuple(sorted((_segment(Path(path)) for path in where), key=lambda one: one.start))
    if not segments:
        raise InvalidRequestError("no segment files are named")
    return LogFiles(segments, find_end(segments, known))


def _directory(path: Path, known: int) -> LogFiles:
    root = path.parent if path.name == COMMIT_LOG and not (path / COMMIT_LOG).is_dir() else path
    directory = root / COMMIT_LOG
    if not directory.is_dir():
        if not (root / "stratamq").is_dir() and not (root / "config").is_dir():
            raise NotFoundError(f"{path} is no store: there is no commitlog directory in it")
        return LogFiles((), 0, os.fspath(root))
    segments = tuple(_segments(directory))
    files = RealFiles(root)
    confirmed = confirmed_end(files)
    end = find_end(segments, known) if confirmed is None else confirmed
    sealed = sealed_from(files) if is_ours(files) else NOWHERE
    return LogFiles(segments, end, os.fspath(root), sealed)


def _segments(directory: Path) -> Iterator[LogSegment]:
    """The files that belong together, up to the newest: before a gap is nothing of this log."""
    found = sorted(_whole_segments(directory), key=lambda segment: segment.start)
    kept: list[LogSegment] = []
    for segment in found:
        if kept and kept[-1].end != segment.start:
            kept = []
        kept.append(segment)
    return iter(kept)


def _whole_segments(directory: Path) -> Iterator[LogSegment]:
    """In no order; without what is deleted meanwhile."""
    for entry in directory.iterdir():
        start = parse_offset_name(entry.name)
        with contextlib.suppress(FileNotFoundError):
            if start is not None and entry.is_file():
                yield LogSegment(os.fspath(entry), start, entry.stat().st_size)


def _segment(path: Path) -> LogSegment:
    start = parse_offset_name(path.name)
    if start is None:
        raise InvalidRequestError(f"{path} is no log segment: its name is not 20 digits")
    return LogSegment(os.fspath(path), start, path.stat().st_size)


def _first_store_time(segment: LogSegment) -> int | None:
    """Store time of the segment's first frame, ms; None when it holds none, or is deleted."""
    try:
        with open(segment.path, "rb") as file:
            return first_store_time(file.read(SEGMENT_HEAD_BYTES), segment.start)
    except FileNotFoundError:
        return None


def find_end(segments: Iterable[LogSegment], known: int = 0) -> int:
    """Where the first frame fails in the last segments; RocketMQ's recovery ends the log there.

    What is below `known`, where a frame begins or the log ended, is not looked at again.
    """
    last = list(segments)[-LAST_SEGMENTS:]
    end = last[0].start if last else 0
    for segment in last:
        end = segment.end
        if known < segment.end:
            end = _end_in(segment, max(known, segment.start))
        if end < segment.end:
            return end
    return end


def _end_in(segment: LogSegment, position: int) -> int:
    """The segment's end if its frames reach from `position` to a blank or its last byte, else the
    first failure."""
    wanted = _WALK_BYTES
    with open(segment.path, "rb", buffering=0) as file:
        while segment.end - position >= BLANK.size:
            data = os.pread(file.fileno(), wanted, position - segment.start)
            looked = examine(data, position, segment.end)
            position += looked.good
            if looked.at_end:
                return segment.end
            if looked.reason or (not looked.good and len(data) < wanted):
                return position
            wanted = _WALK_BYTES if looked.good else looked.needs
    return position
