"""Many frames at once: the header columns of spec 2.2 as NumPy arrays, checked, read and patched.

The byte table stands in `frame_layout.py`; positions here are taken from it. Frames of one buffer
are marked off by their lengths. With IPv4 hosts (nearly always) every header field is a column of
one gathered (n, 22) matrix of words; rows with an IPv6 host are read again at their shifted places.
Frames of one shape, as a producer of one kind of messages sends them, are a matrix as they lie:
one frame is read, and the others compared with it. The kernel reads all fields of all frames.

A pass costs what its NumPy calls cost, whatever it holds: conditions are joined before they are
looked at, and distinguished only when one fails. `check_body_checksums` is a loop on purpose: ISA-L
does 1 KiB in 42 ns, less than any array would cost.
"""

from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptRecordError
from stratamq.formats import frame_layout as layout
from stratamq.formats import kernel, sysflag
from stratamq.formats.checksums import crc32_of_each, crc32_of_even
from stratamq.formats.properties import MAX_PROPERTIES_BYTES

HEADER_BYTES = layout.FIXED_BYTES_WITHOUT_HOSTS + 8 + 8
"""Up to and including BODYLENGTH, with IPv4 hosts."""
assert HEADER_BYTES == 88
_V6_EXTRA_BYTES = 12
_V6_FLAGS = sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6

_FEW = 8

_STARTS = frozenset(("body_start", "topic_start", "properties_start"))
_OF_SHAPE = _STARTS | {"size", "sys_flag", "body_length", "topic_length", "properties_length"}

# Columns of the matrix of big-endian words.
_TOTAL_SIZE, _MAGIC, _BODY_CRC, _QUEUE_ID = 0, 1, 2, 3
_FLAG, _QUEUE_OFFSET, _PHYSICAL_OFFSET, _SYS_FLAG, _BORN_TIMESTAMP = 4, 5, 7, 9, 10
_STORE_TIMESTAMP_V4, _RECONSUME_TIMES_V4, _PREPARED_V4, _BODY_LENGTH_V4 = 14, 18, 19, 21
_HOSTS_V4 = (12, 13, 16, 17)

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """What frames of version 1 with IPv4 hosts have in common when they lie one behind the other
    and agree in all of it. Positions count from a frame's beginning."""

    size: int
    sys_flag: int
    body_length: int
    topic_length: int
    properties_length: int

    @property
    def body_start(self) -> int:
        return HEADER_BYTES

    @property
    def topic_start(self) -> int:
        return HEADER_BYTES + self.body_length + 1

    @property
    def properties_start(self) -> int:
        return self.size - self.properties_length


class FrameColumns:
    """Header fields of n message frames, each an array of n. Starts are positions in the buffer.

    Negative lengths of body and properties count as 0, as RocketMQ reads them.
    """

    __slots__ = (
        "_raw",
        "_words",
        "any_v6",
        "body_length",
        "body_start",
        "properties_length",
        "properties_start",
        "shape",
        "size",
        "start",
        "sys_flag",
        "topic_length",
        "topic_start",
        "version2",
    )

    shape: Shape | None
    """The frames fill the buffer's beginning, all of this shape. None: not checked."""
    start: I64
    size: I64
    sys_flag: I64
    any_v6: bool
    """Some frame has an IPv6 host, so that fields behind BORNHOST are shifted in it."""
    version2: NDArray[np.bool_]
    body_start: I64
    body_length: I64
    topic_start: I64
    topic_length: I64
    properties_start: I64
    properties_length: I64

    def __init__(self, raw: Bytes, words: NDArray[np.integer]) -> None:
        """`words` may be of 32 bits: then they are a view of `raw`."""
        self._raw = raw
        self._words = words
        self.shape = None

    def __len__(self) -> int:
        return len(self.start)

    def __getattr__(self, name: str) -> I64:
        """A column of frames of one shape, made when it is first asked for."""
        if name not in _OF_SHAPE or self.shape is None:
            raise AttributeError(name)
        value: int = getattr(self.shape, name)
        column = self.start + value if name in _STARTS else np.full(len(self), value, np.int64)
        setattr(self, name, column)
        return column

    @property
    def _table(self) -> I64:
        if self._words.dtype != np.int64:
            self._words = self._words.astype(np.int64)
        return self._words

    @property
    def body_crc(self) -> NDArray[np.integer]:
        return self._words[:, _BODY_CRC]

    @property
    def queue_id(self) -> NDArray[np.int32]:
        return self._table[:, _QUEUE_ID].astype(np.int32)

    @property
    def queue_offset(self) -> I64:
        return _join(self._table, _QUEUE_OFFSET)

    @property
    def physical_offset(self) -> I64:
        return _join(self._table, _PHYSICAL_OFFSET)

    @property
    def flag(self) -> NDArray[np.int32]:
        return self._table[:, _FLAG].astype(np.int32)

    @property
    def born_timestamp_ms(self) -> I64:
        return _join(self._table, _BORN_TIMESTAMP)

    @property
    def reconsume_times(self) -> NDArray[np.int32]:
        if not self.any_v6:
            return self._table[:, _RECONSUME_TIMES_V4].astype(np.int32)
        return windows(self._raw, 4)[self.body_start - 16].view(">i4")[:, 0].astype(np.int32)

    @property
    def prepared_transaction_offset(self) -> I64:
        if not self.any_v6:
            return _join(self._table, _PREPARED_V4)
        return windows(self._raw, 8)[self.body_start - 12].view(">i8")[:, 0].astype(np.int64)

    @property
    def hosts_alike(self) -> bool:
        """All frames were born on one IPv4 host, and stored on one."""
        if self.any_v6:
            return False
        return all(
            bool((self._table[:, word] == self._table[:1, word]).all()) for word in _HOSTS_V4
        )

    @property
    def store_timestamp_start(self) -> I64:
        shift = ((self.sys_flag & sysflag.BORN_HOST_V6) != 0) * _V6_EXTRA_BYTES
        return self.start + layout.STORE_TIMESTAMP_POSITION_V4 + shift

    @property
    def store_timestamp_ms(self) -> I64:
        if not self.any_v6:
            return _join(self._table, _STORE_TIMESTAMP_V4)
        return windows(self._raw, 8)[self.store_timestamp_start].view(">i8")[:, 0].astype(np.int64)


class KernelColumns(FrameColumns):
    """The same, all read at once by the kernel: in its order, the columns of 64 and of 32 bits."""

    LONG = (
        *("queue_offset", "physical_offset", "born_timestamp_ms", "store_timestamp_ms"),
        *("prepared_transaction_offset", "body_crc", "sys_flag", "body_start", "body_length"),
        *("topic_start", "topic_length", "properties_start", "properties_length"),
    )
    SHORT = ("queue_id", "flag", "reconsume_times")
    __slots__ = (*LONG[:6], *SHORT, "hosts_alike")


def windows(raw: Bytes, width: int) -> Bytes:
    """All stretches of `width` bytes as rows of a view; index it with starts. `width` ≥ 1."""
    return np.ndarray((max(0, len(raw) - width + 1), width), np.uint8, raw, 0, (1, 1))


def frame_columns(raw: Bytes, lengths: NDArray[np.integer], base_offset: int = 0) -> FrameColumns:
    """Read and check the shape of the frames that `lengths` marks off from position 0 of `raw`.

    A blank as the last member is passed over. Raises CorruptRecordError for the first frame whose
    magic, length or inner lengths contradict each other; `position` is `base_offset` + its start,
    and the field `frame` its number.
    """
    if kernel.NATIVE is None and len(lengths) >= _FEW:
        even = _even_columns(raw, lengths)
        if even is not None:
            return even
    sizes = lengths.astype(np.int64)
    ends = sizes.cumsum()
    starts = ends - sizes
    if len(sizes):
        if int(ends[-1]) > len(raw):
            raise _refuse("length", "the lengths add up to too much", base_offset, starts, 0)
        if sizes[-1] >= 8 and _is_blank(raw, int(starts[-1])):
            starts, sizes = starts[:-1], sizes[:-1]
    return columns_at(raw, starts, sizes, base_offset)


def _follow_each_other(starts: I64, sizes: I64) -> bool:
    """Frames of one size that fill the beginning of their buffer."""
    size, count = int(sizes[0]), len(sizes)
    if int(starts[0]) or int(starts[-1]) != (count - 1) * size:
        return False
    return bool((starts[1:] - starts[:-1] == size).all())


def _even_columns(raw: Bytes, lengths: NDArray[np.integer]) -> FrameColumns | None:
    """The columns of frames of one shape; None when they differ, or something is wrong."""
    count, size = len(lengths), int(lengths[0])
    if size < layout.MIN_FRAME_BYTES or count * size > len(raw) or (lengths != size).any():
        return None

    def column(kind: str, position: int) -> NDArray[np.integer]:
        return np.ndarray((count,), kind, raw, position, (size,))

    heads = column(">u8", layout.TOTAL_SIZE_POSITION)  # TOTALSIZE and MAGICCODE
    flags, body_lengths = column(">u4", layout.SYS_FLAG_POSITION), column(">i4", HEADER_BYTES - 4)
    sys_flag, body_length = int(flags[0]), int(body_lengths[0])
    properties_end = size - HEADER_BYTES - body_length - 3
    if sys_flag & _V6_FLAGS or body_length < 0 or properties_end < 0:
        return None
    topic_lengths = column("i1", HEADER_BYTES + body_length)
    topic_length = int(topic_lengths[0])
    properties_length = properties_end - topic_length
    if topic_length < 0 or not 0 <= properties_length <= MAX_PROPERTIES_BYTES:
        return None
    alike = (heads == np.uint64(size << 32 | layout.MAGIC_V1)) & (flags == sys_flag)
    alike &= (body_lengths == body_length) & (topic_lengths == topic_length)
    alike &= column(">i2", size - properties_length - 2) == properties_length
    if not alike.all():
        return None

    columns = FrameColumns(raw, np.ndarray((count, HEADER_BYTES // 4), ">u4", raw, 0, (size, 4)))
    columns.shape = Shape(size, sys_flag, body_length, topic_length, properties_length)
    columns.any_v6 = False
    columns.start = np.arange(0, count * size, size, dtype=np.int64)
    columns.version2 = np.zeros(count, np.bool_)
    return columns


def columns_at(raw: Bytes, starts: I64, sizes: I64, base_offset: int = 0) -> FrameColumns:
    """The same for frames that lie anywhere in `raw`, each of them within it whole."""
    if not len(sizes):
        return _empty(raw)
    if kernel.NATIVE is not None:
        columns = _columns_by_kernel(kernel.NATIVE, raw, starts, sizes)
        if columns is not None:
            return columns
    elif len(sizes) >= _FEW and _follow_each_other(starts, sizes):
        even = _even_columns(raw, sizes)
        if even is not None:
            return even
    ends = starts + sizes
    if int(sizes.min()) < layout.MIN_FRAME_BYTES:
        short = int((sizes < layout.MIN_FRAME_BYTES).argmax())
        raise _refuse("length", "too short for a frame", base_offset, starts, short)

    words = windows(raw, HEADER_BYTES)[starts].view(">u4").astype(np.int64)
    columns = FrameColumns(raw, words)
    columns.start, columns.size = starts, sizes
    magic = words[:, _MAGIC]
    version2 = magic == layout.MAGIC_V2
    any_version2 = bool(version2.any())
    known = (magic == layout.MAGIC_V1) | version2 if any_version2 else magic == layout.MAGIC_V1
    sized = words[:, _TOTAL_SIZE] == sizes
    if not (known & sized).all():
        _raise_first(
            [(known, "magic", "no magic code"), (sized, "length", "TOTALSIZE is not the length")],
            base_offset,
            starts,
        )
    flags = words[:, _SYS_FLAG]
    columns.sys_flag, columns.version2 = flags, version2
    columns.any_v6 = bool((flags & _V6_FLAGS).any())

    body_start = starts + HEADER_BYTES
    if columns.any_v6:
        hosts6 = ((flags & sysflag.BORN_HOST_V6) != 0).astype(np.int64)
        hosts6 += (flags & sysflag.STORE_HOST_V6) != 0
        body_start += hosts6 * _V6_EXTRA_BYTES
        inside = body_start < ends
        if not inside.all():
            _raise_first([(inside, "length", "no room for the hosts")], base_offset, starts)
        body_length = windows(raw, 4)[body_start - 4].view(">i4")[:, 0].astype(np.int64)
    else:
        body_length = words[:, _BODY_LENGTH_V4].astype(np.int32).astype(np.int64)
    np.maximum(body_length, 0, out=body_length)

    topic_length_start = body_start + body_length
    topic_start = topic_length_start + 1
    if any_version2:
        topic_start += version2
    fits = topic_start <= ends - 2
    if not fits.all():
        what = "the body does not fit the frame"
        _raise_first([(fits, "body_length", what)], base_offset, starts)
    topic_length = raw[topic_length_start].astype(np.int8).astype(np.int64)
    if any_version2:
        rows = np.flatnonzero(version2)
        topic_length[rows] = windows(raw, 2)[topic_length_start[rows]].view(">i2")[:, 0]
    properties_start = topic_start + topic_length + 2
    fits = (topic_length >= 0) & (properties_start <= ends)
    if not fits.all():
        what = "the topic does not fit the frame"
        _raise_first([(fits, "topic_length", what)], base_offset, starts)
    properties_length = windows(raw, 2)[properties_start - 2].view(">i2")[:, 0].astype(np.int64)
    np.maximum(properties_length, 0, out=properties_length)
    fits = properties_start + properties_length == ends
    if not fits.all():
        what = "the inner lengths do not add up"
        _raise_first([(fits, "total_size", what)], base_offset, starts)

    columns.body_start, columns.body_length = body_start, body_length
    columns.topic_start, columns.topic_length = topic_start, topic_length
    columns.properties_start, columns.properties_length = properties_start, properties_length
    return columns


def _columns_by_kernel(
    native: ModuleType, raw: Bytes, starts: I64, sizes: I64
) -> FrameColumns | None:
    """None when a frame contradicts itself: which, and how, is for NumPy to say."""
    starts, sizes = np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
    count = len(starts)
    longs = np.empty((len(KernelColumns.LONG), count), np.int64)
    shorts = np.empty((len(KernelColumns.SHORT), count), np.int32)
    version2 = np.empty(count, np.bool_)
    good, any_v6, alike = native.columns(raw, starts, sizes, longs, shorts, version2)
    if good < count:
        return None
    columns = KernelColumns(raw, longs)
    columns.start, columns.size = starts, sizes
    columns.version2, columns.any_v6, columns.hosts_alike = version2, bool(any_v6), bool(alike)
    for name, column in zip(KernelColumns.LONG, longs, strict=True):
        setattr(columns, name, column)
    for name, column in zip(KernelColumns.SHORT, shorts, strict=True):
        setattr(columns, name, column)
    return columns


def check_body_checksums(view: memoryview, frames: FrameColumns, base_offset: int = 0) -> None:
    """CorruptRecordError (`body_crc`) for the first frame whose body does not match BODYCRC.

    A body of no bytes is not checked, as in RocketMQ (spec 2.7).
    """
    hold = body_checksums_hold(view, frames)
    if not hold.all():
        _raise_first(
            [(hold, "body_crc", "the body does not match BODYCRC")], base_offset, frames.start
        )


def body_checksums_hold(
    view: memoryview, frames: FrameColumns, rows: I64 | slice = slice(None)
) -> NDArray[np.bool_]:
    """For each of these frames: whether its body matches BODYCRC, or it has no BODYCRC."""
    shape = frames.shape
    if shape is not None and isinstance(rows, slice) and rows == slice(None) and shape.body_length:
        places = HEADER_BYTES, len(frames), shape.size, shape.body_length
        return crc32_of_even(view, *places) == frames.body_crc
    starts, lengths = frames.body_start[rows], frames.body_length[rows]
    found = crc32_of_each(view, starts, starts + lengths)
    return (found == frames.body_crc[rows]) | (lengths == 0)


def _join(words: I64, column: int) -> I64:
    return (words[:, column] << 32) | words[:, column + 1]


def _is_blank(raw: Bytes, start: int) -> bool:
    return raw[start + 4 : start + 8].tobytes() == layout.MAGIC_BLANK.to_bytes(4, "big")


def _raise_first(demands: list[tuple[NDArray[np.bool_], str, str]], base: int, starts: I64) -> None:
    """Raise for the first frame that fails any of (holds, reason, sentence)."""
    number, reason, sentence = min(
        (int((~holds).argmax()), reason, sentence)
        for holds, reason, sentence in demands
        if not holds.all()
    )
    raise _refuse(reason, sentence, base, starts, number)


def _refuse(reason: str, sentence: str, base: int, starts: I64, number: int) -> CorruptRecordError:
    position = base + int(starts[number])
    error = CorruptRecordError(f"frame {number} at {position}: {sentence}", position, reason)
    error.fields["frame"] = number
    return error


def _empty(raw: Bytes) -> FrameColumns:
    nothing = np.zeros(0, np.int64)
    columns = FrameColumns(raw, np.zeros((0, HEADER_BYTES // 4), np.int64))
    columns.any_v6 = False
    columns.version2 = np.zeros(0, np.bool_)
    for name in (
        "start",
        "size",
        "sys_flag",
        "body_start",
        "body_length",
        "topic_start",
        "topic_length",
        "properties_start",
        "properties_length",
    ):
        setattr(columns, name, nothing)
    return columns
