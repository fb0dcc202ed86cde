"""From a range of log bytes to the columns that consume queues and index files are built from.

One pure function, `dispatch_columns`, serves the live followers, catch-up, repair and Spark. It
reads frames as RocketMQ's `checkMessageAndReturnSize` does (spec 2.7) without the body checksum:
the writer checked it, and recovery and the scrubber check it again.

Tags and keys are read by the kernel, or without it as follows. Many frames of one producer look
alike: equal property lengths, separators in equal places. Such frames are parsed together, as the
rows of one byte matrix, by the layout of their first; what fits no layout is read one by one. All
ways give the same columns, which a test holds.

A range is in one segment and ends on a frame's end; a blank can only be its last member.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptRecordError
from stratamq.formats import kernel, sysflag
from stratamq.formats.columns import FrameColumns, frame_columns, windows
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS, deliver_timestamp, parse_java_int
from stratamq.formats.frame_layout import BLANK
from stratamq.formats.frame_scan import ScanEnd, scan_frames
from stratamq.formats.javahash import absolute_hash, java_string_hash, java_string_hash_utf8
from stratamq.formats.light_queues import MULTI_DISPATCH, light_places
from stratamq.formats.numbers import INT32_MIN
from stratamq.formats.properties import MAX_PROPERTIES_BYTES, find_property
from stratamq.formats.text import decode_text
from stratamq.formats.text_groups import group_texts
from stratamq.formats.topics import SCHEDULE_TOPIC

_LAYOUT_ROUNDS = 4
_LAYOUT_ROWS = 8
_TAGS, _UNIQ_KEY, _KEYS = b"TAGS", b"UNIQ_KEY", b"KEYS"
_SCHEDULE = SCHEDULE_TOPIC.encode()
_SPACE = 0x20
_LIGHT, _LEFT_OVER = 1, 2
"""What the kernel says of a row: its name is that of light queues; it is not for the kernel."""


@dataclass(frozen=True, slots=True)
class DispatchColumns:
    """One row per message frame, in log order; blanks are no rows. All arrays have n rows but two.

    `tags_code` is the hash of the whole TAGS text, or in SCHEDULE_TOPIC_XXXX the deliver time.
    `topic_index` points into `topics`. `key_row` and `key_hash` have one entry per index item, in
    the order of spec 7.2: row by row, UNIQ_KEY, then each word of KEYS; rows of every transaction
    type are in them, so a builder of indexes leaves out rollbacks, one of queues prepared ones too.
    """

    physical_offset: NDArray[np.int64]
    size: NDArray[np.int32]
    queue_id: NDArray[np.int32]
    queue_offset: NDArray[np.int64]
    store_timestamp_ms: NDArray[np.int64]
    sys_flag: NDArray[np.int32]
    tags_code: NDArray[np.int64]
    topic_index: NDArray[np.int32]
    topics: list[str]
    key_row: NDArray[np.int32]
    key_hash: NDArray[np.int32]
    light: Sequence[tuple[int, str, int]] = ()
    """(row, name, queue offset there) of light queues (`formats.light_queues`), in log order."""

    def __len__(self) -> int:
        return len(self.size)

    def of_topics(self, topics: Container[str]) -> NDArray[np.bool_]:
        """Rows of these topics."""
        found = np.zeros(len(self), np.bool_)
        for number, topic in enumerate(self.topics):
            if topic in topics:
                found |= self.topic_index == number
        return found

    @property
    def in_queue(self) -> NDArray[np.bool_]:
        """Rows that stand in a consume queue: transaction type none or commit."""
        kind = self.sys_flag & sysflag.TRANSACTION_MASK
        return (kind == sysflag.TRANSACTION_NONE) | (kind == sysflag.TRANSACTION_COMMIT)

    @property
    def in_index(self) -> NDArray[np.bool_]:
        """Rows that are indexed: all but rollbacks."""
        return (self.sys_flag & sysflag.TRANSACTION_MASK) != sysflag.TRANSACTION_ROLLBACK


def scan_lengths(
    buffer: memoryview | bytes,
    base_offset: int,
    end_offset: int,
    max_members: int | None = None,
    *,
    partial: bool = False,
) -> NDArray[np.uint32]:
    """Lengths of the frames and the blank in [base_offset, end_offset), buffer byte 0 at the base.

    At most `max_members` of them: a bare range can be a whole segment, and is scanned in steps.
    `partial`: the buffer may end before the range; those that are whole in it.
    Raises CorruptRecordError with the log offset of the first member that is none, or that does not
    end within the range.
    """
    end = end_offset - base_offset
    there = len(buffer)
    if end > there and not partial:
        raise _corrupt("length", "the bytes end before the range does", base_offset + there)
    scan = scan_frames(buffer, limit=end, most=max_members)
    place, left = base_offset + scan.end, end - scan.end
    if scan.stop is ScanEnd.MAGIC:
        raise _corrupt("magic", f"{scan.magic:08X} is no magic code", place)
    if scan.stop is ScanEnd.LENGTH or (scan.stop is ScanEnd.BLANK and scan.size != left):
        raise _corrupt("length", f"length {scan.size} leaves the range", place)
    if scan.stop is ScanEnd.BLANK and scan.end + scan.size <= there:
        return np.append(scan.sizes, scan.size).astype(np.uint32)
    if scan.stop is not ScanEnd.ENOUGH and 0 < left < BLANK.size:
        raise _corrupt("length", "the range ends within a frame", place)
    return scan.sizes.astype(np.uint32)


def dispatch_columns(
    buffer: memoryview | bytes,
    base_offset: int,
    lengths: NDArray[np.integer],
    delay_levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS,
) -> DispatchColumns:
    """The columns of the frames that `lengths` marks off; buffer byte 0 is at `base_offset`.

    Raises CorruptRecordError when a frame contradicts itself, or PHYSICALOFFSET its place.
    """
    raw = np.frombuffer(buffer, np.uint8)
    frames = frame_columns(raw, lengths, base_offset)
    bad = np.flatnonzero(frames.physical_offset != base_offset + frames.start)
    if len(bad):
        raise _corrupt(
            "physical_offset",
            "PHYSICALOFFSET is not the frame's place",
            base_offset + int(frames.start[bad[0]]),
        )
    return _columns(raw, base_offset, frames, delay_levels_ms)


def displaced_columns(
    buffer: memoryview | bytes, base_offset: int, lengths: NDArray[np.integer]
) -> DispatchColumns:
    """Like `dispatch_columns`, for frames that are not at their PHYSICALOFFSET; `base_offset` is
    used only in errors."""
    raw = np.frombuffer(buffer, np.uint8)
    frames = frame_columns(raw, lengths, base_offset)
    return _columns(raw, base_offset, frames, DEFAULT_DELAY_LEVELS_MS)


def _columns(
    raw: NDArray[np.uint8],
    base_offset: int,
    frames: FrameColumns,
    delay_levels_ms: Sequence[int],
) -> DispatchColumns:
    topic_index, topics_raw = group_texts(raw, frames.topic_start, frames.topic_length)
    topics = [decode_text(topic) for topic in topics_raw]
    parser = _PropertyParser(raw, frames, topic_index, topics)
    parser.run()
    tags_code = parser.tags_code
    for scheduled in (i for i, topic in enumerate(topics_raw) if topic == _SCHEDULE):
        for row in np.flatnonzero(topic_index == scheduled).tolist():
            properties = parser.properties(row)
            level = find_property(properties, b"DELAY")
            if level is not None:
                code = _deliver_time(
                    level,
                    int(frames.store_timestamp_ms[row]),
                    delay_levels_ms,
                    base_offset + int(frames.start[row]),
                )
                if code is not None:
                    tags_code[row] = code
    key_row, key_hash = parser.keys()
    return DispatchColumns(
        physical_offset=frames.physical_offset,
        size=frames.size.astype(np.int32),
        queue_id=frames.queue_id,
        queue_offset=frames.queue_offset,
        store_timestamp_ms=frames.store_timestamp_ms,
        sys_flag=frames.sys_flag.astype(np.int32),
        tags_code=tags_code,
        topic_index=topic_index,
        topics=topics,
        key_row=key_row,
        key_hash=key_hash,
        light=[
            (row, *place)
            for row in sorted(parser.light_rows)
            for place in light_places(parser.properties(row))
        ],
    )


def _deliver_time(
    level_raw: bytes, store_timestamp_ms: int, levels_ms: Sequence[int], offset: int
) -> int | None:
    try:
        level = parse_java_int(decode_text(level_raw))
    except ValueError:
        raise _corrupt("delay", f"DELAY is {level_raw!r}, not a number", offset) from None
    return deliver_timestamp(level, store_timestamp_ms, levels_ms)


def _corrupt(reason: str, sentence: str, offset: int) -> CorruptRecordError:
    return CorruptRecordError(f"log offset {offset}: {sentence}", offset, reason)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the values lie in property texts that have separators in the same places."""

    separators: NDArray[np.uint8]
    """The text with everything but 0x01 and 0x02 zeroed."""
    spans: dict[bytes, tuple[int, int]]
    """Value's begin and end by name; only the three names that dispatch reads."""
    names: list[tuple[int, int]]
    """Spans of all item names; rows must agree with the sample in them."""
    has_light: bool
    """One of the names is that of light queues."""


class _PropertyParser:
    """Tags and keys of all frames: by layout where many are alike, else one by one."""

    def __init__(
        self,
        raw: NDArray[np.uint8],
        frames: FrameColumns,
        topic_index: NDArray[np.int32],
        topics: list[str],
    ) -> None:
        count = len(frames)
        self._raw = raw
        self._start = frames.properties_start
        self._length = frames.properties_length
        self._topic_index = topic_index
        prefix_hash = [java_string_hash(topic + "#") & 0xFFFFFFFF for topic in topics]
        self._prefix_hash = np.array(prefix_hash, np.uint32)
        self.tags_code = np.zeros(count, np.int64)
        self.light_rows: list[int] = []
        self._key_rows: list[NDArray[np.integer]] = []
        """The keys of one row are in one of these, in order."""
        self._key_hashes: list[NDArray[np.integer]] = []

    def run(self) -> None:
        lengths = self._length
        if not len(lengths):
            return
        if kernel.NATIVE is not None:
            self._parse_by_kernel(kernel.NATIVE)
            return
        if (lengths == lengths[0]).all():
            groups = [np.arange(len(lengths))]
        else:
            order = np.argsort(lengths, kind="stable")
            cuts = np.flatnonzero(np.diff(lengths[order])) + 1
            groups = np.split(order, cuts)
        leftovers: list[int] = []
        for rows in groups:
            width = int(lengths[rows[0]])
            if width == 0:
                continue
            leftovers += self._parse_group(rows, width)
        if leftovers:
            # They come group by group; what is read in one go must be in the order of the log.
            self._parse_singly(sorted(leftovers))

    def properties(self, row: int) -> bytes:
        start = int(self._start[row])
        return self._raw[start : start + int(self._length[row])].tobytes()

    def keys(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        if not self._key_rows:
            return np.zeros(0, np.int32), np.zeros(0, np.int32)
        rows = np.concatenate(self._key_rows)
        hashes = np.concatenate(self._key_hashes)
        if len(self._key_rows) > 1:
            order = np.argsort(rows, kind="stable")
            rows, hashes = rows[order], hashes[order]
        return rows.astype(np.int32), hashes.astype(np.int32)

    def _parse_by_kernel(self, native: ModuleType) -> None:
        starts, lengths = np.ascontiguousarray(self._start), np.ascontiguousarray(self._length)
        kinds, count, room = np.empty(len(lengths), np.uint8), 0, 4 * len(lengths)
        while True:
            rows, hashes = np.empty(room, np.int32), np.empty(room, np.int32)
            count = native.tags_and_keys(
                self._raw,
                starts,
                lengths,
                self._topic_index,
                self._prefix_hash,
                self.tags_code,
                kinds,
                rows,
                hashes,
            )
            if count <= room:
                break
            room = count
        self._key_rows.append(rows[:count])
        self._key_hashes.append(hashes[:count])
        self.light_rows += np.flatnonzero(kinds == _LIGHT).tolist()
        self._parse_singly(np.flatnonzero(kinds == _LEFT_OVER).tolist())

    def _parse_group(self, rows: NDArray[np.int64], width: int) -> list[int]:
        """Parse rows of equal length by layouts taken from samples; the rows left over."""
        for _ in range(_LAYOUT_ROUNDS):
            if len(rows) < _LAYOUT_ROWS:
                break
            matrix = windows(self._raw, width)[self._start[rows]]
            layout = _layout_of(matrix[0].tobytes())
            fits = (np.where(matrix <= 2, matrix, 0) == layout.separators).all(axis=1)
            for begin, end in layout.names:
                fits &= (matrix[:, begin:end] == matrix[0, begin:end]).all(axis=1)
            for begin, end in layout.spans.values():
                fits &= (matrix[:, begin:end] < 0x80).all(axis=1)
            if _KEYS in layout.spans:
                begin, end = layout.spans[_KEYS]
                spaces = matrix[:, begin:end] == _SPACE
                fits &= (spaces == spaces[0]).all(axis=1)
            if not fits[0]:
                # The sample itself needs the slow way (text beyond ASCII).
                self._parse_singly([int(rows[0])])
                rows = rows[1:]
                continue
            if fits.all():
                self._take(rows, matrix, layout)
                return []
            self._take(rows[fits], matrix[fits], layout)
            rows = rows[~fits]
        return rows.tolist()

    def _take(self, rows: NDArray[np.int64], matrix: NDArray[np.uint8], layout: _Layout) -> None:
        if layout.has_light:
            self.light_rows += rows.tolist()
        if _TAGS in layout.spans:
            begin, end = layout.spans[_TAGS]
            self.tags_code[rows] = _hash_columns(matrix[:, begin:end]).astype(np.int32)
        words: list[tuple[int, int]] = []
        if _UNIQ_KEY in layout.spans:
            words.append(layout.spans[_UNIQ_KEY])
        if _KEYS in layout.spans:
            begin, end = layout.spans[_KEYS]
            at = begin
            for word in matrix[0, begin:end].tobytes().split(b" "):
                if word:
                    words.append((at, at + len(word)))
                at += len(word) + 1
        if not words:
            return
        prefix = self._prefix_hash[self._topic_index[rows]]
        hashes = np.empty((len(rows), len(words)), np.int64)
        for column, (begin, end) in enumerate(words):
            power = np.uint32(pow(31, end - begin, 1 << 32))
            code = prefix * power + _hash_columns(matrix[:, begin:end])
            hashes[:, column] = np.abs(code.astype(np.int32).astype(np.int64))
        hashes[hashes == -INT32_MIN] = 0
        self._key_rows.append(np.repeat(rows, len(words)))
        self._key_hashes.append(hashes.reshape(-1))

    def _parse_singly(self, rows: list[int]) -> None:
        key_rows: list[int] = []
        key_hashes: list[int] = []
        view = self._raw.data
        starts, lengths = self._start, self._length
        for row in rows:
            start = int(starts[row])
            properties = bytes(view[start : start + int(lengths[row])])
            if MULTI_DISPATCH in properties:
                self.light_rows.append(row)
            tags = find_property(properties, _TAGS)
            if tags is not None:
                self.tags_code[row] = java_string_hash_utf8(tags)
            words = []
            unique = find_property(properties, _UNIQ_KEY)
            if unique is not None:
                words.append(unique)
            keys = find_property(properties, _KEYS)
            if keys is not None:
                words += [word for word in keys.split(b" ") if word]
            prefix = int(self._prefix_hash[self._topic_index[row]])
            for word in words:
                key_rows.append(row)
                key_hashes.append(_key_hash(prefix, word))
        if key_rows:
            self._key_rows.append(np.array(key_rows, np.int64))
            self._key_hashes.append(np.array(key_hashes, np.int64))


def _key_hash(prefix_hash: int, word: bytes) -> int:
    if word.isascii():
        units = len(word)
        tail = java_string_hash_utf8(word)
    else:
        text = decode_text(word)
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2
        tail = java_string_hash(text)
    code = (prefix_hash * pow(31, units, 1 << 32) + tail) & 0xFFFFFFFF
    return absolute_hash(code - (1 << 32) if code & 0x80000000 else code)


_POWERS = np.multiply.accumulate(
    np.array([1] + [31] * MAX_PROPERTIES_BYTES, np.uint32), dtype=np.uint32
)


def _hash_columns(matrix: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Java hash of each row of ASCII bytes. Sums must stay in 32 bits: NumPy would widen them."""
    width = matrix.shape[1]
    weighted = matrix.astype(np.uint32) * _POWERS[:width][::-1]
    return weighted.sum(axis=1, dtype=np.uint32)


def _layout_of(sample: bytes) -> _Layout:
    text = np.frombuffer(sample, np.uint8)
    spans: dict[bytes, tuple[int, int]] = {}
    names: list[tuple[int, int]] = []
    at = 0
    for item in sample.split(b"\x02"):
        name, _, value = item.partition(b"\x01")
        names.append((at, at + len(name)))
        if name and value and name in (_TAGS, _UNIQ_KEY, _KEYS):
            begin = at + len(name) + 1
            spans[name] = (begin, begin + len(value))
        at += len(item) + 1
    has_light = any(sample[begin:end] == MULTI_DISPATCH for begin, end in names)
    return _Layout(np.where(text <= 2, text, 0), spans, names, has_light)
