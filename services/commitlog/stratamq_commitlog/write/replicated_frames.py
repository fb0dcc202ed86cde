"""A master's bytes, checked for a slave's log: whole frames, their queues, what follows.

What is looked at is what a dispatcher would fall over: the shape of each frame, its place, and the
level of a delayed message. Properties are not read otherwise, and checksums neither: the master has
checked them, and recovery and the scrubber check them again.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptRecordError, InvalidRequestError
from stratamq.follow.protocol import Run as FollowRun
from stratamq.formats import sysflag
from stratamq.formats.columns import FrameColumns, frame_columns
from stratamq.formats.dispatch import dispatch_columns, scan_lengths
from stratamq.formats.frame_layout import END_FILE_MIN_BLANK_LENGTH
from stratamq.formats.text import decode_text
from stratamq.formats.text_groups import group_texts
from stratamq.formats.topics import SCHEDULE_TOPIC


@dataclass(frozen=True, slots=True)
class ReplicatedFrames:
    lengths: NDArray[np.uint32]
    """Of the frames, and of the blank if the bytes end in one."""
    frames: FrameColumns
    runs: list[FollowRun]
    next_offsets: dict[tuple[str, int], int]
    """By topic and queue, of the queues that grow."""


def read_replicated_frames(
    data: bytes | memoryview, offset: int, remaining: int
) -> ReplicatedFrames:
    """The frames in `data`, which begins at `offset`, `remaining` bytes before its segment's end.

    Raises CorruptRecordError, and InvalidRequestError for bytes that would leave a segment's end
    without a blank.
    """
    if len(data) > remaining:
        raise InvalidRequestError("the data crosses a segment's end")
    lengths = scan_lengths(data, offset, offset + len(data))
    raw = np.frombuffer(data, np.uint8)
    frames = frame_columns(raw, lengths, offset)
    filled = len(data) == remaining
    if len(frames) < len(lengths) and not filled:
        raise InvalidRequestError("a blank must reach to its segment's end")
    if not filled and remaining - len(data) < END_FILE_MIN_BLANK_LENGTH:
        raise InvalidRequestError("the data leaves less than a blank needs")
    if not len(frames):
        return ReplicatedFrames(lengths, frames, [], {})
    astray = frames.physical_offset != frames.start + offset
    if astray.any():
        at = offset + int(frames.start[astray.argmax()])
        sentence = f"log offset {at}: PHYSICALOFFSET is not the frame's place"
        raise CorruptRecordError(sentence, at, "physical_offset")
    topic_index, texts = group_texts(raw, frames.topic_start, frames.topic_length)
    topics = [decode_text(text) for text in texts]
    if SCHEDULE_TOPIC in topics:
        dispatch_columns(data, offset, lengths)
    runs, following = _runs(frames, topic_index, topics)
    return ReplicatedFrames(lengths, frames, runs, following)


def _runs(
    frames: FrameColumns, topic_index: NDArray[np.int32], topics: list[str]
) -> tuple[list[FollowRun], dict[tuple[str, int], int]]:
    """Neighbours in one queue together; a frame that takes no queue offset is a run of its own."""
    queue_id, queue_offset = frames.queue_id, frames.queue_offset
    kind = frames.sys_flag & sysflag.TRANSACTION_MASK
    counted = (kind == sysflag.TRANSACTION_NONE) | (kind == sysflag.TRANSACTION_COMMIT)
    begins = np.ones(len(frames), np.bool_)
    begins[1:] = (
        (topic_index[1:] != topic_index[:-1])
        | (queue_id[1:] != queue_id[:-1])
        | (queue_offset[1:] != queue_offset[:-1] + 1)
        | ~(counted[1:] & counted[:-1])
    )
    firsts = np.flatnonzero(begins)
    counts = np.diff(firsts, append=len(frames))
    runs: list[FollowRun] = []
    following: dict[tuple[str, int], int] = {}
    rows = zip(
        topic_index[firsts].tolist(),
        queue_id[firsts].tolist(),
        queue_offset[firsts].tolist(),
        counts.tolist(),
        counted[firsts].tolist(),
        strict=True,
    )
    for index, queue, first, count, counts_in in rows:
        topic = topics[index]
        runs.append((topic, queue, first, count))
        if counts_in:
            following[topic, queue] = first + count
    return runs, following
