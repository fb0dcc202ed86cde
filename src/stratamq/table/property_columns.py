"""The properties of many frames as Arrow columns: the map itself, TAGS, and the words of KEYS.

Frames of one producer look alike: property texts of equal length with separators in equal places.
Such rows are taken together, as one byte matrix whose values are its columns; whatever fits no
layout, and text beyond ASCII, is decoded row by row as `properties.decode_properties` does. Both
ways give the same, which a test holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stratamq.formats.columns import FrameColumns, windows
from stratamq.formats.properties import KEYS, TAGS, decode_properties, split_keys
from stratamq.table.texts import ascii_rows

_LAYOUT_ROUNDS = 4
_LAYOUT_ROWS = 8
_SPACE = 0x20
_SEPARATORS = 2
"""Bytes up to this are NUL, 0x01 and 0x02."""

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PropertyColumns:
    properties: pa.Array | None
    tags: pa.Array | None
    keys: pa.Array | None


@dataclass(slots=True)
class _Parts:
    """What groups of rows gave: values in any order of rows, to be put in the log's order.

    `rows` has one entry for each value; of one row they stand in order.
    """

    rows: list[Rows] = field(default_factory=list)
    values: list[pa.Array] = field(default_factory=list)

    def add(self, rows: Rows, values: pa.Array) -> None:
        if len(rows):
            self.rows.append(rows)
            self.values.append(values)

    def in_order(self) -> tuple[Rows, pa.Array]:
        if not self.rows:
            return np.zeros(0, np.int64), pa.array([], pa.string())
        if len(self.rows) == 1:
            return self.rows[0], self.values[0]
        rows = np.concatenate(self.rows)
        order = np.argsort(rows, kind="stable")
        return rows[order], pa.concat_arrays(self.values).take(pa.array(order))


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the values lie in property texts that look like one sample."""

    separators: NDArray[np.uint8]
    names: list[tuple[int, int]]
    """Spans of names, equal in all rows."""
    items: list[tuple[str, int, int]]
    """Name, and the span of its value, in the order in which the decoder meets them."""


def property_columns(
    raw: NDArray[np.uint8], frames: FrameColumns, wanted: frozenset[str]
) -> PropertyColumns:
    """Of `properties`, `tags` and `keys` those that are `wanted`."""
    reader = _Reader(raw, frames, wanted)
    reader.run()
    return reader.result()


class _Reader:
    def __init__(
        self, raw: NDArray[np.uint8], frames: FrameColumns, wanted: frozenset[str]
    ) -> None:
        self._raw = raw
        self._start, self._length = frames.properties_start, frames.properties_length
        self._wanted = wanted
        self._names: dict[str, int] = {}
        self._name_parts: list[NDArray[np.int32]] = []
        self._items, self._tags, self._keys = _Parts(), _Parts(), _Parts()

    def run(self) -> None:
        lengths = self._length
        if not self._wanted or not len(lengths):
            return
        if (lengths == lengths[0]).all():
            groups: list[Rows] = [np.arange(len(lengths))]
        else:
            order = np.argsort(lengths, kind="stable")
            groups = np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1)
        for rows in groups:
            width = int(lengths[rows[0]])
            if width:
                self._one_by_one(self._alike(rows, width))

    def result(self) -> PropertyColumns:
        count, wanted = len(self._length), self._wanted
        return PropertyColumns(
            self._map(count) if "properties" in wanted else None,
            self._tag_column(count) if "tags" in wanted else None,
            self._key_column(count) if "keys" in wanted else None,
        )

    # --- rows that look alike ---

    def _alike(self, rows: Rows, width: int) -> Rows:
        """Take rows of equal length by layouts of samples; those that are left over."""
        for _ in range(_LAYOUT_ROUNDS):
            if len(rows) < _LAYOUT_ROWS:
                break
            matrix = windows(self._raw, width)[self._start[rows]]
            layout = _layout_of(matrix[0].tobytes())
            if layout is None:
                self._one_by_one(rows[:1])
                rows = rows[1:]
                continue
            fits = (np.where(matrix <= _SEPARATORS, matrix, 0) == layout.separators).all(axis=1)
            fits &= (matrix < 0x80).all(axis=1)
            for begin, end in layout.names:
                fits &= (matrix[:, begin:end] == matrix[0, begin:end]).all(axis=1)
            if fits.all():
                self._take(rows, matrix, layout)
                return rows[:0]
            self._take(rows[fits], matrix[fits], layout)
            rows = rows[~fits]
        return rows

    def _take(self, rows: Rows, matrix: NDArray[np.uint8], layout: _Layout) -> None:
        count = len(rows)
        if "properties" in self._wanted and layout.items:
            places = np.concatenate([np.arange(b, e) for _, b, e in layout.items])
            widths = np.array([end - begin for _, begin, end in layout.items], np.int32)
            offsets = np.zeros(count * len(widths) + 1, np.int32)
            np.cumsum(np.tile(widths, count), out=offsets[1:])
            data = np.ascontiguousarray(matrix[:, places]).reshape(-1).data
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            values = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
            self._items.add(np.repeat(rows, len(widths)), values)
            numbers = np.array([self._number(name) for name, _, _ in layout.items], np.int32)
            self._name_parts.append(np.tile(numbers, count))
        for name, begin, end in layout.items:
            if name == TAGS and "tags" in self._wanted:
                self._tags.add(rows, ascii_rows(matrix[:, begin:end]))
            if name == KEYS and "keys" in self._wanted:
                self._take_keys(rows, matrix[:, begin:end])

    def _take_keys(self, rows: Rows, texts: NDArray[np.uint8]) -> None:
        spaces = texts == _SPACE
        if not spaces.any():
            self._keys.add(rows, ascii_rows(texts))
            return
        words = [split_keys(text.tobytes().decode()) for text in texts]
        self._add_keys(rows.tolist(), words)

    # --- rows by themselves ---

    def _one_by_one(self, rows: Rows) -> None:
        if not len(rows):
            return
        view, starts, lengths = self._raw.data, self._start, self._length
        decoded = [
            decode_properties(bytes(view[start : start + length]))
            for start, length in zip(starts[rows].tolist(), lengths[rows].tolist(), strict=True)
        ]
        if "properties" in self._wanted:
            counts = np.array([len(one) for one in decoded], np.int64)
            values = [value for one in decoded for value in one.values()]
            names = [self._number(name) for one in decoded for name in one]
            self._items.add(np.repeat(rows, counts), pa.array(values, pa.string()))
            if names:
                self._name_parts.append(np.array(names, np.int32))
        if "tags" in self._wanted:
            tagged = [
                (row, one[TAGS]) for row, one in zip(rows, decoded, strict=True) if TAGS in one
            ]
            self._tags.add(
                np.array([row for row, _ in tagged], np.int64),
                pa.array([tag for _, tag in tagged], pa.string()),
            )
        if "keys" in self._wanted:
            self._add_keys(rows.tolist(), [split_keys(one.get(KEYS, "")) for one in decoded])

    def _add_keys(self, rows: list[int], words: list[list[str]]) -> None:
        counts = np.array([len(one) for one in words], np.int64)
        self._keys.add(
            np.repeat(np.array(rows, np.int64), counts),
            pa.array([word for one in words for word in one], pa.string()),
        )

    # --- columns ---

    def _number(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def _map(self, count: int) -> pa.Array:
        rows, values = self._items.in_order()
        numbers = np.concatenate(self._name_parts) if self._name_parts else np.zeros(0, np.int32)
        if len(self._items.rows) > 1:
            order = np.argsort(np.concatenate(self._items.rows), kind="stable")
            numbers = numbers[order]
        names = pa.array(list(self._names), pa.string()).take(pa.array(numbers))
        return pa.MapArray.from_arrays(_offsets(rows, count), names, values)

    def _tag_column(self, count: int) -> pa.Array:
        rows, values = self._tags.in_order()
        if len(rows) == count:
            return values
        index = np.full(count, -1, np.int64)
        index[rows] = np.arange(len(rows))
        return values.take(pa.array(index, mask=index < 0))

    def _key_column(self, count: int) -> pa.Array:
        rows, values = self._keys.in_order()
        return pa.ListArray.from_arrays(_offsets(rows, count), values)


def _offsets(rows: Rows, count: int) -> pa.Array:
    """Where each of `count` rows begins among values whose rows are given in order."""
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return pa.array(offsets)


def _layout_of(sample: bytes) -> _Layout | None:
    """None when the sample needs the slow way: a name that comes twice."""
    text = np.frombuffer(sample, np.uint8)
    names: list[tuple[int, int]] = []
    items: list[tuple[str, int, int]] = []
    for name, begin, middle, end in _items_of(sample):
        names.append((begin, begin + len(name)))
        if name and end > middle:
            items.append((name.decode("latin-1"), middle, end))
    if not sample.isascii() or len({name for name, _, _ in items}) < len(items):
        return None
    return _Layout(np.where(text <= _SEPARATORS, text, 0), names, items)


def _items_of(sample: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Name, where the item begins, where its value begins, where it ends."""
    at = 0
    for item in sample.split(b"\x02"):
        name, separator, _ = item.partition(b"\x01")
        yield name, at, at + len(name) + len(separator), at + len(item)
        at += len(item) + 1
