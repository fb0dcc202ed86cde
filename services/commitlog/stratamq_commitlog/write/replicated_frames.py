"""A master's bytes, checked for a slave's log: whole frames, their queues, what follows.

What is looked at is what a dispatcher would fall over: the shape of each frame, its place, and the
level of a delayed message. Properties are not read otherwise, and checksums neither: the master has
checked them, and recovery and the scrubber check them again.

A few plain frames are read one by one: columns cost 0.5 ms whatever they hold, and a SYNC_MASTER's
producer waits for them. What is not plain, and whatever is wrong, is left to the columns, which say
what it is.
"""

from dataclasses import dataclass
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptRecordError, InvalidRequestError
from stratamq.follow.protocol import Run as FollowRun
from stratamq.formats import sysflag
from stratamq.formats.columns import HEADER_BYTES, FrameColumns, frame_columns
from stratamq.formats.dispatch import dispatch_columns, scan_lengths
from stratamq.formats.frame_layout import END_FILE_MIN_BLANK_LENGTH, MAGIC_V1, MIN_FRAME_BYTES
from stratamq.formats.text import decode_text
from stratamq.formats.text_groups import group_texts
from stratamq.formats.topics import SCHEDULE_TOPIC

MAX_FEW = 32
"""Frames; with more, columns are cheaper."""
_FEW_BYTES = 64 << 10
_HEAD = Struct(">II4xi4xqqI16xq20xi")
"""TOTALSIZE, MAGICCODE, QUEUEID, QUEUEOFFSET, PHYSICALOFFSET, SYSFLAG, STORETIMESTAMP, BODYLENGTH,
with IPv4 hosts."""
_V6 = sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6
_COUNTED = (sysflag.TRANSACTION_NONE, sysflag.TRANSACTION_COMMIT)
assert _HEAD.size == HEADER_BYTES


@dataclass(frozen=True, slots=True)
class ReplicatedFrames:
    lengths: NDArray[np.uint32]
    """The lengths of the frames, and of the blank if the bytes end in one."""
    count: int
    """The number of frames."""
    last_frame: tuple[int, int] | None
    """Log offset and size."""
    newest_ms: int
    """The newest store time; 0 without a frame."""
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
    few = _few_frames(data, offset, remaining)
    if few is not None:
        return few
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
        return ReplicatedFrames(lengths, 0, None, 0, [], {})
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
    last_frame = (offset + int(frames.start[-1]), int(frames.size[-1]))
    newest_ms = int(frames.store_timestamp_ms.max())
    return ReplicatedFrames(lengths, len(frames), last_frame, newest_ms, runs, following)


def _few_frames(data: bytes | memoryview, offset: int, remaining: int) -> ReplicatedFrames | None:
    """The same of a few plain frames, version 1 with IPv4 hosts and no blank behind them; None of
    all else."""
    end = len(data)
    if end > _FEW_BYTES or end > remaining or 0 < remaining - end < END_FILE_MIN_BLANK_LENGTH:
        return None
    sizes: list[int] = []
    runs: list[FollowRun] = []
    following: dict[tuple[str, int], int] = {}
    start, newest_ms, counted_before = 0, 0, False
    while start < end:
        if len(sizes) == MAX_FEW or end - start < MIN_FRAME_BYTES:
            return None
        size, magic, queue, queue_offset, place, flags, stored_ms, body = _HEAD.unpack_from(
            data, start
        )
        topic = _topic(data, start, size, body)
        plain = magic == MAGIC_V1 and not flags & _V6 and place == offset + start
        if not plain or topic is None or topic == SCHEDULE_TOPIC:
            return None
        counted = flags & sysflag.TRANSACTION_MASK in _COUNTED
        before = runs[-1] if runs else None
        joins = before and before[:2] == (topic, queue) and before[2] + before[3] == queue_offset
        if before and joins and counted and counted_before:
            runs[-1] = (topic, queue, before[2], before[3] + 1)
        else:
            runs.append((topic, queue, queue_offset, 1))
        if counted:
            following[topic, queue] = queue_offset + 1
        newest_ms = max(newest_ms, stored_ms) if sizes else stored_ms
        sizes.append(size)
        counted_before, start = counted, start + size
    if not sizes:
        return None
    last_frame = (offset + end - sizes[-1], sizes[-1])
    lengths = np.array(sizes, np.uint32)
    return ReplicatedFrames(lengths, len(sizes), last_frame, newest_ms, runs, following)


def _topic(data: bytes | memoryview, start: int, size: int, body_length: int) -> str | None:
    """The topic of a frame whose inner lengths add up to its size; None of another."""
    end, length_at = start + size, start + HEADER_BYTES + body_length
    if size < MIN_FRAME_BYTES or end > len(data) or body_length < 0 or length_at > end - 3:
        return None
    topic_at = length_at + 1
    properties_at = topic_at + data[length_at] + 2
    if data[length_at] > 127 or properties_at > end:
        return None
    properties_length = int.from_bytes(data[properties_at - 2 : properties_at], "big", signed=True)
    if properties_length != end - properties_at:
        return None
    try:
        return str(data[topic_at : properties_at - 2], "utf-8")
    except UnicodeDecodeError:
        return None


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
