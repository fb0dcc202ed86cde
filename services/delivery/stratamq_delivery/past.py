"""The state of the room at a moment of the past, computed from the files of a store.

The machines are folds over the log, so that the same code which runs in the service says who held
what at any offset that the log still has. It reads the files alone: a broker may be running on them
or not, and nothing is changed. *Cost*: the log is read once, from its beginning to the moment.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stratamq.errors import InvalidRequestError, NotFoundError, OffsetOutOfRangeError
from stratamq.files.real import RealFiles
from stratamq.follow.fold import FoldPlace
from stratamq.follow.log_rows import NEVER, UNDO_BYTES
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import KEYS, REAL_QID, REAL_TOPIC, UNIQ_KEY
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.store.generations import history
from stratamq.store.log_pieces import LogPiece, read_pieces
from stratamq.store.segment_reader import SegmentReader
from stratamq.table.log_files import LogFiles, open_log
from stratamq_delivery.half_messages import CheckRules, HalfMessages
from stratamq_delivery.levels import Levels
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.shared_queue import Hold
from stratamq_delivery.taken_over import TakenOver
from stratamq_delivery.timed_messages import TimedMessages, due_ms_of

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
PIECE_MESSAGES = 4_096
NEVER_ROLLED_MS = 1 << 50
"""Nothing is appended here: the time of a message is when it is due."""


@dataclass(frozen=True, slots=True)
class PastState:
    """What the room knew when the log ended at `offset`. Rows are dictionaries, names as in the
    command line's JSON; places are offsets in bytes of the log, times are ms since 1970."""

    offset: int
    time_ms: int
    """Store time of the newest message below `offset`; a later time that was asked for."""
    groups_known: bool
    """False: the log begins after a group's first record, and this moment is before the next whole
    state of the groups. A queue of a group may be missing, or too short."""
    _followed: FoldPlace
    _taken_over: TakenOver
    _levels: Levels
    _timed: TimedMessages
    _groups: SharedGroups
    _halves: HalfMessages

    def delayed(self) -> Iterator[Row]:
        """Delayed messages that are not delivered: a level after the other, then those for any
        time; held ones too. Level 0: the message is for a time."""
        for level, queue in sorted(self._levels.queues.items()):
            for waiting in queue.waiting():
                yield {
                    "kind": "delayed",
                    "level": level + 1,
                    "dueTimestamp": waiting.due_ms,
                    "held": waiting.offset < self._taken_over.held_below,
                    **self._message(waiting.offset, waiting.size),
                }
        for offset, size in self._timed.waiting():
            yield {
                "kind": "delayed",
                "level": 0,
                "dueTimestamp": due_ms_of(self._frame(offset, size)),
                "held": offset < self._taken_over.held_below,
                **self._message(offset, size),
            }

    def transactions(self) -> Iterator[Row]:
        """Half messages that are not decided, or whose decision is not carried out."""
        halves, rows = self._halves, self._halves.rows
        for row in np.flatnonzero(rows["closed_at"] == NEVER).tolist():
            offset, outcome = int(rows["source"][row]), halves.outcome(row)
            yield {
                "kind": "transaction",
                "group": halves.party(row).group,
                "state": "open" if outcome is None else outcome.name.lower(),
                "checks": int(rows["checks"][row]),
                "held": offset < self._taken_over.held_below,
                **self._message(offset, int(rows["size"][row])),
            }

    def shared_queues(self, group: str | None = None) -> Iterator[Row]:
        """The queues of shared groups."""
        for place in sorted(self._groups.folded_places()):
            queue = self._groups.folded(place)
            if queue is not None and group in (None, place.group):
                yield {
                    "kind": "sharedQueue",
                    "group": place.group,
                    "topic": place.topic,
                    "queueId": place.queue_id,
                    "floor": queue.floor,
                    "next": queue.next,
                    "unfinished": queue.unfinished,
                }

    def hand_outs(self, group: str | None = None) -> Iterator[Row]:
        """Messages that a worker has, or had last, and that were not acknowledged. `secondsLeft`
        is 0 where the time of the hand-out was over."""
        for place in sorted(self._groups.folded_places()):
            queue = self._groups.folded(place)
            if queue is None or group not in (None, place.group):
                continue
            for start, end, holder in queue:
                if isinstance(holder, Hold):
                    left_ms = max(0, queue.until_ms(holder) - self.time_ms)
                    yield {
                        "kind": "handOut",
                        "group": place.group,
                        "topic": place.topic,
                        "queueId": place.queue_id,
                        "offset": start,
                        "count": end - start,
                        "clientId": holder.client,
                        "attempt": holder.attempt,
                        "secondsLeft": left_ms / 1000,
                    }

    def table(self, kind: str) -> Iterator[Row]:
        """The rows of one of KINDS."""
        tables = (self.delayed, self.transactions, self.hand_outs)
        return dict(zip(KINDS, tables, strict=True))[kind]()

    def _frame(self, offset: int, size: int) -> Frame:
        segments = self._followed.segments
        assert segments is not None
        frame = decode(bytes(segments.window(offset, size)))
        assert isinstance(frame, Frame)
        return frame

    def _message(self, offset: int, size: int) -> Row:
        """What a waiting message says of itself."""
        frame = self._frame(offset, size)
        properties = frame.properties
        queue_id = properties.get(REAL_QID, "")
        return {
            "topic": properties.get(REAL_TOPIC, ""),
            "queueId": int(queue_id) if queue_id.isascii() and queue_id.isdigit() else None,
            "messageId": properties.get(UNIQ_KEY, ""),
            "keys": properties.get(KEYS, ""),
            "phyOffset": offset,
            "storeTimestamp": frame.store_timestamp_ms,
        }


KINDS = ("delayed", "transactions", "hand-outs")
_MESSAGE = {
    "topic": "string",
    "queueId": "int32",
    "messageId": "string",
    "keys": "string",
    "phyOffset": "int64",
    "storeTimestamp": "int64",
}
COLUMNS = {
    "delayed": {"dueTimestamp": "int64", "level": "int32", "held": "bool", **_MESSAGE},
    "transactions": {
        "group": "string",
        "state": "string",
        "checks": "int32",
        "held": "bool",
        **_MESSAGE,
    },
    "hand-outs": {
        "group": "string",
        "topic": "string",
        "queueId": "int32",
        "offset": "int64",
        "count": "int64",
        "clientId": "string",
        "attempt": "int32",
        "secondsLeft": "float64",
    },
}
"""By kind: the columns of `pending`, and their types in Arrow."""


def pending(
    where: str | os.PathLike[str],
    kind: str,
    *,
    offset: int | None = None,
    time: datetime | int | None = None,
) -> "pa.Table":
    """What waits in the store of a directory, as an Arrow table with the columns of COLUMNS: now,
    when its log ended at `offset`, or at a `time` (a naive datetime is local time, a number ms
    since 1970). Raises what `state_at` raises, and InvalidRequestError for an unknown kind."""
    import pyarrow as pa

    if kind not in KINDS:
        raise InvalidRequestError(f"kind {kind!r} is none of {', '.join(KINDS)}")
    time_ms = round(time.timestamp() * 1000) if isinstance(time, datetime) else time
    rows = state_at(Path(where), offset=offset, time_ms=time_ms).table(kind)
    columns = COLUMNS[kind]
    schema = pa.schema([(name, pa.type_for_alias(alias)) for name, alias in columns.items()])
    chosen = [{name: row[name] for name in columns} for row in rows]
    return pa.Table.from_pylist(chosen, schema)


def state_at(
    root: Path,
    *,
    offset: int | None = None,
    time_ms: int | None = None,
    levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS,
) -> PastState:
    """The state when the log ended at `offset`, which is rounded up to a message's beginning, or
    after the last message that was stored at or before `time_ms`; of now without either.

    NotFoundError without a log, InvalidRequestError for both, OffsetOutOfRangeError for what the
    log has no more or not yet, CorruptionError where the log is damaged.
    """
    if offset is not None and time_ms is not None:
        raise InvalidRequestError("name an offset or a time, not both")
    log = open_log(root)
    if not log.segments or log.root is None:
        raise NotFoundError(f"{root} is no store directory with a log")
    if offset is not None and not log.minimum <= offset <= log.end:
        raise OffsetOutOfRangeError(
            f"offset {offset} is not in the log, which has {log.minimum} to {log.end}",
            log.minimum,
            log.end,
        )
    return _folded(log, log.end if offset is None else offset, time_ms, levels_ms)


def followed_of(log: LogFiles) -> FoldPlace:
    """The place of a fold that has read nothing yet of a log's files."""
    files, segment_bytes = RealFiles(Path(str(log.root))), log.segments[0].size
    return FoldPlace(
        applied=log.minimum,
        confirmed=log.end,
        minimum=log.minimum,
        segment_bytes=segment_bytes,
        opened=True,
        segments=SegmentReader(files, COMMIT_LOG, segment_bytes),
        history=partial(history, files),
    )


def _folded(log: LogFiles, end: int, time_ms: int | None, levels_ms: Sequence[int]) -> PastState:
    followed = followed_of(log)
    segments, segment_bytes = followed.segments, followed.segment_bytes
    assert segments is not None
    taken_over = TakenOver(followed)
    levels, groups = Levels(levels_ms, followed, taken_over), SharedGroups(followed)
    timed = TimedMessages(NEVER_ROLLED_MS, followed, taken_over)
    halves = HalfMessages(followed, CheckRules(), taken_over, UNDO_BYTES)
    newest_ms = 0
    read = partial(
        read_pieces, segments.window, segment_bytes, PIECE_MESSAGES, delay_levels_ms=levels_ms
    )
    for piece in _until(read, log, end, time_ms):
        for machine in (taken_over, levels, timed, groups, halves):
            machine.apply(piece)
        followed.go_on_at(piece.end)
        newest_ms = max(newest_ms, int(piece.columns.store_timestamp_ms.max(initial=0)))
    known = log.minimum == 0 or groups.newest_whole >= 0
    moment_ms = newest_ms if time_ms is None else max(newest_ms, time_ms)
    return PastState(
        followed.applied, moment_ms, known, followed, taken_over, levels, timed, groups, halves
    )


def _until(
    read: Callable[[int, int], Iterator[LogPiece]], log: LogFiles, end: int, time_ms: int | None
) -> Iterator[LogPiece]:
    """The messages that begin below `end` and were stored at or before `time_ms`."""
    last = log.end if time_ms is None else log.within(None, time_ms + 1)[1]
    for piece in read(log.minimum, last):
        within = piece.columns.physical_offset < end
        if time_ms is not None:
            within &= piece.columns.store_timestamp_ms <= time_ms
        if within.all():
            yield piece
            continue
        yield from read(piece.start, int(piece.columns.physical_offset[int(within.argmin())]))
        return
