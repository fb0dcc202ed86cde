"""Where a stream stands: a place in the log, and the queue offsets that follow from it.

A log has one order, and a place in it is one cut through all its queues. So the place alone
determines what has been read, exactly: a batch is the frames that begin between two places. As
JSON:

    {"log": 8190, "generation": 4294967303, "queues": {"flights": {"0": 23, "1": 20}},
     "skip": {"orders": {"0": 100}}, "cuts": [4096]}

`generation` is the log's when the place was reached: a promotion begins another one, and cuts what
only the old master had (decision 049). Checkpoints of earlier versions, and logs of RocketMQ's,
have none. `queues` is the offset of the next message of every queue that has been seen, for people
and for telling what was lost; nothing is chosen by it, so that a queue that RocketMQ restarted is
no gap. `cuts` are the places at which the batch is divided that ends here, if it is read from a
running broker (`cuts`). Of queues that retention has emptied, `queues` keeps the last `MAX_EMPTY`.
`skip` holds the queues that begin at a named offset, until they have come there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import InvalidRequestError, OffsetOutOfRangeError
from stratamq.formats.columns import FrameColumns
from stratamq.formats.text import decode_text
from stratamq.formats.text_groups import group_texts
from stratamq.table.selection import Queue, Selection, in_queue
from stratamq_pipeline.log_view import LogView

MAX_EMPTY = 1024
"""Enough to tell for most streams that a queue which was empty goes on where it was."""
_QUEUE_ID_MASK = np.int64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """`log`: where the next frame to be looked at begins. `generation` 0: not known."""

    log: int
    queues: dict[Queue, int] = field(default_factory=dict)
    skip: dict[Queue, int] = field(default_factory=dict)
    generation: int = 0
    cuts: tuple[int, ...] = ()
    """Where the batch that ends here is divided."""

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "StreamOffset":
        if "log" not in given:
            raise InvalidRequestError("the checkpoint is of several logs: read the same ones")
        queues, skip = _flat(given.get("queues", {})), _flat(given.get("skip", {}))
        generation, cuts = int(given.get("generation", 0)), tuple(given.get("cuts", ()))
        return cls(int(given["log"]), queues, skip, generation, cuts)

    def to_json(self) -> dict[str, Any]:
        nested: dict[str, Any] = {"log": self.log, "queues": _nested(self.queues)}
        if self.generation:
            nested["generation"] = self.generation
        if self.cuts:
            nested["cuts"] = list(self.cuts)
        return nested | {"skip": _nested(self.skip)} if self.skip else nested

    def after(
        self, log: int, seen: Mapping[Queue, int], generation: int, cuts: Sequence[int] = ()
    ) -> "StreamOffset":
        """The place `log`, with the next offsets of the queues that were seen before it."""
        queues = {**self.queues, **seen}
        skip = {queue: at for queue, at in self.skip.items() if queues.get(queue, 0) < at}
        return StreamOffset(log, queues, skip, generation, tuple(cuts))

    def without_empty(self, places: Mapping[Queue, int], minimum: int) -> "StreamOffset":
        """Without the queues that were emptied first, beyond `MAX_EMPTY`. `places`: of the last
        message of each queue in the log, or of something behind it."""
        empty = [queue for queue in self.queues if places[queue] < minimum]
        if len(empty) <= MAX_EMPTY:
            return self
        empty.sort(key=places.__getitem__)
        gone = set(empty[:-MAX_EMPTY])
        kept = {queue: at for queue, at in self.queues.items() if queue not in gone}
        return replace(self, queues=kept)


def next_offsets(
    raw: NDArray[np.uint8], frames: FrameColumns, rows: NDArray[np.int64] | None
) -> dict[Queue, tuple[int, int]]:
    """For each queue among these rows (None: all rows): the offset after its last message, and the
    place of that message in the log."""
    offsets, places = frames.queue_offset, frames.physical_offset
    newest = _ends_of_queues(raw, frames, rows, newest=True)
    return {queue: (int(offsets[row]) + 1, int(places[row])) for queue, row in newest.items()}


def _ends_of_queues(
    raw: NDArray[np.uint8], frames: FrameColumns, rows: NDArray[np.int64] | None, *, newest: bool
) -> dict[Queue, int]:
    """For each queue among these rows: the row of its newest or oldest message."""
    stands = in_queue(frames)
    rows = np.flatnonzero(stands) if rows is None else rows[stands[rows]]
    if not len(rows):
        return {}
    if newest:
        rows = rows[::-1]
    index, names = group_texts(raw, frames.topic_start[rows], frames.topic_length[rows])
    key = (index.astype(np.int64) << 32) | (frames.queue_id[rows] & _QUEUE_ID_MASK)
    keys, first = np.unique(key, return_index=True)
    chosen = rows[first]
    topics = [decode_text(name) for name in names]
    ids = frames.queue_id[chosen].tolist()
    return {
        (topics[one >> 32], queue_id): row
        for one, queue_id, row in zip(keys.tolist(), ids, chosen.tolist(), strict=True)
    }


def first_offsets(
    view: LogView, selection: Selection, enough: Collection[Queue] | None = None
) -> dict[Queue, int]:
    """The offset of the oldest message of every selected queue that is in the log; when `enough`
    are found the walk ends."""
    found: dict[Queue, int] = {}
    for raw, frames in view.frames(view.minimum, view.end):
        rows = selection.rows(raw, frames)
        for queue, row in _ends_of_queues(raw, frames, rows, newest=False).items():
            found.setdefault(queue, int(frames.queue_offset[row]))
        if enough is not None and found.keys() >= set(enough):
            break
    return found


def ends_of(view: LogView, queues: Collection[Queue]) -> dict[Queue, int]:
    """The offset of the next message of each of these queues: the log is walked through for it."""
    selection = Selection(topics=frozenset(topic for topic, _ in queues))
    ends = dict.fromkeys(queues, 0)
    for raw, frames in view.frames(view.minimum, view.end):
        seen = next_offsets(raw, frames, selection.rows(raw, frames))
        ends.update((queue, at) for queue, (at, _) in seen.items() if queue in ends)
    return ends


def check_starts(view: LogView, starting: Mapping[Queue, int]) -> None:
    """OffsetOutOfRangeError when a named offset has left the log."""
    named = {queue: at for queue, at in starting.items() if at >= 0}
    topics = frozenset(topic for topic, _ in named)
    first = first_offsets(view, Selection(topics=topics), named) if named else {}
    for queue, at in sorted(named.items()):
        oldest = first.get(queue)
        if oldest is None and at > 0:
            raise OffsetOutOfRangeError(
                f"startingOffsets: topic {queue[0]} queue {queue[1]} begins at {at}, and no "
                "message of it is in the log (failOnDataLoss=false reads what there is)",
                0,
                0,
            )
        if oldest is not None and oldest > at:
            raise OffsetOutOfRangeError(
                f"startingOffsets: topic {queue[0]} queue {queue[1]} begins at {at}, and the log "
                f"has it from {oldest} on (failOnDataLoss=false begins there)",
                oldest,
                oldest,
            )


def losses(view: LogView, at: StreamOffset, selection: Selection) -> list[str]:
    """What retention has taken from a stream that stands at a place below the log's minimum.

    A sentence for each queue whose next message is gone. What cannot be determined is named, too: a
    queue of which nothing is left may have had nothing more, and one that was never seen may have
    had its older messages before the stream began.
    """
    known = {**at.skip, **at.queues}
    first = first_offsets(view, selection)
    gone = []
    for queue in sorted(known.keys() | first.keys()):
        topic, queue_id = queue
        if not selection.wants_topic(topic):
            continue
        if selection.queues is not None and queue_id not in selection.queues:
            continue
        name = f"topic {topic} queue {queue_id}"
        following = max(at.queues.get(queue, 0), at.skip.get(queue, 0))
        oldest = first.get(queue)
        if oldest is None:
            gone.append(f"{name}: whatever there was from {following} on")
        elif oldest > following:
            gone.append(f"{name}: offsets {following} to {oldest - 1}")
    return gone


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[Queue, int]:
    return {
        (topic, int(queue_id)): int(at)
        for topic, queues in nested.items()
        for queue_id, at in queues.items()
    }


def _nested(flat: Mapping[Queue, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, queue_id), at in sorted(flat.items()):
        nested.setdefault(topic, {})[str(queue_id)] = at
    return nested
