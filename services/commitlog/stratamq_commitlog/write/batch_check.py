"""Checks the ready frames of the fast stream, many batches in one pass of columns.

What is looked at: lengths, magic, SYSFLAG, topic, body length and checksum, and with the record
checksum switched on the room for it. Properties are not read, except for topics with a type: their
meaning is the followers'. But what recovery takes for a torn or a damaged record (`looks_torn`)
must not get into the log.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptRecordError, InvalidRequestError
from stratamq.files.port import SECTOR_BYTES
from stratamq.formats import sysflag
from stratamq.formats.checksums import crc32_of_each, crc32_of_even
from stratamq.formats.columns import (
    FrameColumns,
    Shape,
    check_body_checksums,
    frame_columns,
    windows,
)
from stratamq.formats.columns_patch import even_stretches, scatter
from stratamq.formats.message_status import SendStatus
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES, encode_property_crc
from stratamq.rpc.refusals import Refusal
from stratamq_commitlog.messages import FrameBatch, FrameRun

FORBIDDEN_FLAGS = 0xFFFFFFFF & ~(
    sysflag.COMPRESSED
    | sysflag.MULTI_TAGS
    | sysflag.COMPRESSION_MASK
    | sysflag.BORN_HOST_V6
    | sysflag.STORE_HOST_V6
)
"""SYSFLAG bits that a producer may not set."""
_PLACEHOLDER = np.frombuffer(encode_property_crc(0), np.uint8)
PLACEHOLDER = _PLACEHOLDER.tobytes()
PLACEHOLDER_END = PLACEHOLDER[-1]
_PLACEHOLDER_WORDS = _PLACEHOLDER.view(np.uint32)
_DIGITS_START = 9
_NO_ROWS = np.zeros(0, np.int64)
_DIGITS = (np.arange(10_000)[:, None] // (1, 10, 100, 1_000)) % 10 + ord("0")
_FOUR_DIGITS = _DIGITS.astype(np.uint8).view(np.uint32)[:, 0]
"""The last four decimal digits of each number below 10 000, the lowest first, as they lie there."""
_FEW_TOPICS = 16
ZERO_RUN_BYTES = SECTOR_BYTES
ZERO_END = "the properties end in a zero byte"
ZERO_RUN = f"the properties hold {ZERO_RUN_BYTES} zero bytes in a row"
_ZEROS = bytes(ZERO_RUN_BYTES)


@dataclass(frozen=True, slots=True)
class FrameRules:
    """What a batch's frames are held to."""

    store_host: bytes
    max_message_bytes: int
    version2: bool
    property_checksum: bool
    forbidden_flags: int = FORBIDDEN_FLAGS

    def for_batch(self, batch: FrameBatch) -> "FrameRules":
        """A service of the broker may also append the committed copy of a half message."""
        if batch.fence is None:
            return self
        return replace(self, forbidden_flags=FORBIDDEN_FLAGS & ~sysflag.TRANSACTION_COMMIT)


@dataclass(frozen=True, slots=True)
class CheckedFrames:
    """Frames of several batches in one private buffer, good as they are and unpatched."""

    raw: NDArray[np.uint8]
    lengths: NDArray[np.uint32]
    frames: FrameColumns
    runs: list[FrameRun]
    run_counts: NDArray[np.int64]
    sealed: NDArray[np.int64]
    """Rows that end in a record checksum, which is to be filled when they are patched."""


class BadFrame(Exception):
    """The first bad frame, numbered through all batches of the pass."""

    def __init__(self, number: int, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.number = number
        self.reason = reason

    def refusal(self, start: int, count: int) -> Refusal:
        """Refuse so many messages from the bad one on. Message `start` of their batch was the first
        of the pass."""
        number = start + self.number
        error = InvalidRequestError(f"frame {number}: {self}", frame=number, reason=self.reason)
        return Refusal(number, count, SendStatus.MESSAGE_ILLEGAL, error)


def check_shape(batch: FrameBatch, max_bytes: int, max_messages: int) -> None:
    """The checks of a batch that need not read its frames. Raises InvalidRequestError."""
    count = len(batch.lengths)
    if not count:
        raise InvalidRequestError("an empty batch")
    if count > max_messages:
        raise InvalidRequestError(f"{count} messages in a batch, more than {max_messages}")
    if len(batch.frames) > max_bytes:
        raise InvalidRequestError(f"{len(batch.frames)} bytes in a batch, more than {max_bytes}")
    if int(batch.lengths.sum(dtype=np.int64)) != len(batch.frames):
        raise InvalidRequestError("the lengths do not add up to the frames' bytes")
    counts = [run.count for run in batch.runs]
    if min(counts, default=0) <= 0 or sum(counts) != count:
        raise InvalidRequestError("the runs do not add up to the number of frames")


def check_frames(batches: list[FrameBatch], rules: FrameRules) -> CheckedFrames:
    """Copy the frames into private memory and check every one. Raises BadFrame."""
    joined = bytearray().join([batch.frames for batch in batches])
    lengths = (
        batches[0].lengths if len(batches) == 1 else np.concatenate([b.lengths for b in batches])
    )
    runs = batches[0].runs if len(batches) == 1 else [run for b in batches for run in b.runs]
    try:
        return _check(joined, lengths, runs, rules)
    except BadFrame as bad:
        raise _first_bad(joined, lengths, runs, rules, bad) from None


def _check(
    joined: bytearray, lengths: NDArray[np.uint32], runs: list[FrameRun], rules: FrameRules
) -> CheckedFrames:
    raw = np.frombuffer(joined, np.uint8)
    try:
        frames = frame_columns(raw, lengths)
        if len(frames) != len(lengths):
            raise BadFrame(len(frames), "magic", "a blank is no message")
        check_body_checksums(memoryview(joined), frames)
    except CorruptRecordError as error:
        number = int(error.fields["frame"])  # type: ignore[call-overload]
        raise BadFrame(number, error.reason, error.message) from None
    _check_fields(raw, frames, rules)
    counts = np.array([run.count for run in runs], np.int64)
    _check_topics(raw, frames, runs, counts)
    return CheckedFrames(raw, lengths, frames, runs, counts, _check_text(raw, frames, rules))


def _first_bad(
    joined: bytearray,
    lengths: NDArray[np.uint32],
    runs: list[FrameRun],
    rules: FrameRules,
    bad: BadFrame,
) -> BadFrame:
    """Columns find the first frame that fails the first check; an earlier one may fail a later."""
    while bad.number:
        count, before = bad.number, []
        for run in runs:
            if count <= 0:
                break
            before.append(FrameRun(run.topic, run.queue_id, min(run.count, count)))
            count -= run.count
        try:
            _check(joined, lengths[: bad.number], before, rules)
        except BadFrame as earlier:
            bad = earlier
        else:
            break
    return bad


def _check_fields(raw: NDArray[np.uint8], frames: FrameColumns, rules: FrameRules) -> None:
    if frames.shape is None or not _fields_hold(frames.shape, rules):
        _check_each(raw, frames, rules)
    if rules.property_checksum:
        _check_room(raw, frames)


def _fields_hold(shape: Shape, rules: FrameRules) -> bool:
    """Whether the checks of each frame's fields need not be made."""
    return (
        not shape.sys_flag & rules.forbidden_flags
        and len(rules.store_host) == 8
        and 0 < shape.body_length <= rules.max_message_bytes
        and shape.properties_length > 0
    )


def _check_each(raw: NDArray[np.uint8], frames: FrameColumns, rules: FrameRules) -> None:
    flags = frames.sys_flag
    store6 = sysflag.STORE_HOST_V6 if len(rules.store_host) == 20 else 0
    host = (flags & sysflag.STORE_HOST_V6) == store6
    plain = (flags & rules.forbidden_flags) == 0
    small = frames.body_length <= rules.max_message_bytes
    if not (host & plain & small).all():
        _demand(plain, "sys_flag", "SYSFLAG bits a producer may not set")
        _demand(host, "host", f"STOREHOST must have {len(rules.store_host)} bytes")
        _demand(small, "body_length", f"a body of more than {rules.max_message_bytes} bytes")
    if not rules.version2:
        _demand(~frames.version2, "magic", "version 2 frames need commitlog.write_v2")
    if not frames.body_length.all() or not frames.properties_length.all():
        _check_not_negative(raw, frames)


def _check_room(raw: NDArray[np.uint8], frames: FrameColumns) -> None:
    """Every frame must end in a record checksum that is still to be filled."""
    shape = frames.shape
    if shape is not None and shape.properties_length >= PROPERTY_CRC_BYTES:
        tail = shape.size - PROPERTY_CRC_BYTES
        tails = even_stretches(raw, len(frames), shape.size, tail, PROPERTY_CRC_BYTES)
        if (tails == _PLACEHOLDER).all():
            return
    room = frames.properties_length >= PROPERTY_CRC_BYTES
    tails = windows(raw, PROPERTY_CRC_BYTES)[frames.start + frames.size - PROPERTY_CRC_BYTES]
    empty = tails.view(np.uint32) == _PLACEHOLDER_WORDS
    if not (room.all() and empty.all()):
        _demand(room, "property_checksum", "no room for the record checksum")
        what = "the frame must end in an empty record checksum"
        _demand(empty.all(axis=1), "property_checksum", what)


def _check_not_negative(raw: NDArray[np.uint8], frames: FrameColumns) -> None:
    """Readers take negative lengths for 0; nothing like that is written."""
    view = raw.data
    for row in np.flatnonzero(frames.body_length == 0).tolist():
        start = int(frames.body_start[row])
        if bytes(view[start - 4 : start]) != b"\0\0\0\0":
            raise BadFrame(row, "body_length", "a negative body length")
    for row in np.flatnonzero(frames.properties_length == 0).tolist():
        start = int(frames.properties_start[row])
        if bytes(view[start - 2 : start]) != b"\0\0":
            raise BadFrame(row, "properties_length", "a negative properties length")


def _check_topics(
    raw: NDArray[np.uint8], frames: FrameColumns, runs: list[FrameRun], counts: NDArray[np.int64]
) -> None:
    names = {topic: topic.encode() for topic in dict.fromkeys([run.topic for run in runs])}
    if frames.shape is not None and _topics_of_even(raw, frames, runs, counts, names):
        return
    if len(names) <= _FEW_TOPICS:
        number = {topic: i for i, topic in enumerate(names)}
        if len(names) == 1:
            rows_of = [slice(None)]
        else:
            per_run = np.fromiter((number[run.topic] for run in runs), np.int64, len(runs))
            per_row = np.repeat(per_run, counts)
            rows_of = [np.flatnonzero(per_row == i) for i in range(len(names))]
        for rows, name in zip(rows_of, names.values(), strict=True):
            starts, width = frames.topic_start[rows], len(name)
            equal = frames.topic_length[rows] == width
            if width and equal.all():
                found = windows(raw, width)[starts]
                equal = (found == np.frombuffer(name, np.uint8)).all(axis=1)
            if not equal.all():
                bad = np.arange(len(frames))[rows][np.flatnonzero(~equal)[0]]
                raise BadFrame(int(bad), "topic", "the frame's topic is not its run's")
        return
    view = raw.data
    starts, lengths = frames.topic_start.tolist(), frames.topic_length.tolist()
    first = 0
    for run in runs:
        name = names[run.topic]
        for row in range(first, first + run.count):
            if view[starts[row] : starts[row] + lengths[row]] != name:
                raise BadFrame(row, "topic", "the frame's topic is not its run's")
        first += run.count


def _topics_of_even(
    raw: NDArray[np.uint8],
    frames: FrameColumns,
    runs: list[FrameRun],
    counts: NDArray[np.int64],
    names: dict[str, bytes],
) -> bool:
    """Whether every frame of one shape has its run's topic."""
    shape = frames.shape
    assert shape is not None
    width = shape.topic_length
    if not width or any(len(name) != width for name in names.values()):
        return False
    if len(names) == 1:
        wanted = np.frombuffer(names[runs[0].topic], np.uint8)
    else:
        of_runs = np.frombuffer(b"".join([names[run.topic] for run in runs]), np.uint8)
        wanted = of_runs.reshape(-1, width).repeat(counts, axis=0)
    found = even_stretches(raw, len(frames), shape.size, shape.topic_start, width)
    return bool((found == wanted).all())


def _check_text(
    raw: NDArray[np.uint8], frames: FrameColumns, rules: FrameRules
) -> NDArray[np.int64]:
    """Refuse text that recovery would take for a tear; the rows that end in a record checksum."""
    if rules.property_checksum:
        return np.arange(len(frames))
    ends = frames.start + frames.size
    last = raw[ends - 1]
    if int(last.min()) > PLACEHOLDER_END and (int(frames.properties_length.max()) < ZERO_RUN_BYTES):
        return _NO_ROWS
    _demand((last != 0) | (frames.properties_length == 0), "properties", ZERO_END)
    for row in np.flatnonzero(frames.properties_length >= ZERO_RUN_BYTES).tolist():
        start = int(frames.properties_start[row])
        if looks_torn(bytes(raw[start : int(ends[row])])):
            raise BadFrame(row, "properties", ZERO_RUN)
    rows = np.flatnonzero((last == PLACEHOLDER_END) & (frames.properties_length >= 20))
    if len(rows):
        marks = windows(raw, _DIGITS_START)[ends[rows] - PROPERTY_CRC_BYTES]
        rows = rows[(marks == _PLACEHOLDER[:_DIGITS_START]).all(axis=1)]
    return rows


def fill_property_checksums(raw: NDArray[np.uint8], checked: CheckedFrames) -> None:
    """Write the record checksums of patched frames that end in one, whatever its value was."""
    frames, shape = checked.frames, checked.frames.shape
    if shape is not None and len(checked.sealed) == len(frames):
        count, size, end = len(frames), shape.size, shape.size - PROPERTY_CRC_BYTES
        crcs = crc32_of_even(raw.data, 0, count, size, end)
        even_stretches(raw, count, size, end + _DIGITS_START, 10)[:] = _digits(crcs)
        return
    starts = checked.frames.start[checked.sealed]
    ends = starts + checked.frames.size[checked.sealed] - PROPERTY_CRC_BYTES
    crcs = crc32_of_each(raw.data, starts, ends)
    scatter(raw, ends + _DIGITS_START, _digits(crcs))


def _digits(crcs: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Ten decimal digits of each, the least significant first; four are looked up at a time."""
    digits = np.empty((len(crcs), 3), np.uint32)
    left = crcs
    for column in range(3):
        higher = left // 10_000
        digits[:, column] = _FOUR_DIGITS[left - higher * 10_000]
        left = higher
    return digits.view(np.uint8)[:, :10]


def _demand(good: NDArray[np.bool_], reason: str, sentence: str) -> None:
    if not good.all():
        raise BadFrame(int(np.flatnonzero(~good)[0]), reason, sentence)


def looks_torn(text: bytes) -> bool:
    """Whether recovery would take a frame with these properties for one that the disk has not
    finished: above the last durable position, one with a whole sector of zeros in its properties,
    or whose last byte of text is zero (`recovery_cases`, J).

    Such text is refused when it comes in: acknowledged, it would end the log at the next crash.
    Frames with a record checksum need no such rule.
    """
    return text.endswith(b"\0") or _ZEROS in text
