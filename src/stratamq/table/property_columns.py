"""The properties of many frames as Arrow columns: the map itself, TAGS, and the words of KEYS.

The kernel takes texts apart. Without it rows whose texts look alike (`property_layout`) are taken
together, as one byte matrix whose values are its columns; whatever fits no layout, and text beyond
ASCII, is decoded row by row as `properties.decode_properties` does. All ways give the same, which a
test holds.
"""

from dataclasses import dataclass, field
from types import ModuleType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stratamq.formats import kernel
from stratamq.formats.columns import FrameColumns
from stratamq.formats.properties import KEYS, TAGS, decode_properties, split_keys
from stratamq.table.property_layout import PropertyLayout, Texts, layout_of
from stratamq.table.texts import ascii_rows, ascii_spans, repeated, strings

_LAYOUT_ROUNDS = 4
_LAYOUT_ROWS = 8
_SPACE = 0x20
_ITEMS, _WORDS = 16, 8
"""Room for so many properties and keys a row in the mean: untouched, it costs nothing."""

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


def property_columns(
    raw: NDArray[np.uint8], frames: FrameColumns, wanted: frozenset[str]
) -> PropertyColumns:
    """Build those of the columns `properties`, `tags` and `keys` that are `wanted`."""
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
        self._names, self._values = _Parts(), _Parts()
        self._tags, self._keys = _Parts(), _Parts()

    def run(self) -> None:
        lengths = self._length
        if not self._wanted or not len(lengths):
            return
        if kernel.NATIVE is not None:
            self._by_kernel(kernel.NATIVE)
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

    # --- rows that the kernel takes apart ---

    def _by_kernel(self, native: ModuleType) -> None:
        starts, lengths = np.ascontiguousarray(self._start), np.ascontiguousarray(self._length)
        count, room = len(lengths), (_ITEMS * len(lengths), _WORDS * len(lengths))
        counts = np.empty((3, count), np.int32)
        while True:
            items, words = np.empty((4, room[0]), np.int64), np.empty((2, room[1]), np.int64)
            found = native.property_spans(self._raw, starts, lengths, counts, *items, *words)
            if found[0] <= room[0] and found[1] <= room[1]:
                break
            room = (max(room[0], found[0]), max(room[1], found[1]))
        items, words = items[:, : found[0]], words[:, : found[1]]
        item_count, word_count, tags = counts
        rows = np.arange(count)
        left_over = item_count < 0
        if "properties" in self._wanted:
            item_rows = np.repeat(rows, np.maximum(item_count, 0))
            self._names.add(item_rows, strings(self._raw, *items[:2]))
            self._values.add(item_rows, strings(self._raw, *items[2:]))
        if "tags" in self._wanted:
            tagged = np.flatnonzero(tags >= 0)
            self._tags.add(tagged, strings(self._raw, *items[2:, tags[tagged]]))
        if "keys" in self._wanted:
            self._keys.add(np.repeat(rows, word_count), strings(self._raw, *words))
        self._one_by_one(np.flatnonzero(left_over))

    # --- rows that look alike ---

    def _alike(self, rows: Rows, width: int) -> Rows:
        """Take rows of equal length by layouts of samples; those that are left over."""
        texts = Texts.gather(self._raw, self._start[rows], rows, width)
        for _ in range(_LAYOUT_ROUNDS):
            if len(texts) < _LAYOUT_ROWS:
                break
            layout = layout_of(texts.bytes[0].tobytes())
            if layout is None:
                self._one_by_one(texts.rows[:1])
                texts = texts.behind(1)
                continue
            fits = texts.like(layout)
            if fits.all():
                self._take(texts, layout)
                return rows[:0]
            self._take(texts.where(fits), layout)
            texts = texts.where(~fits)
        return texts.rows

    def _take(self, texts: Texts, layout: PropertyLayout) -> None:
        rows, matrix, items = texts.rows, texts.bytes, layout.items
        if "properties" in self._wanted and items:
            item_rows = np.repeat(rows, len(items))
            self._values.add(item_rows, ascii_spans(matrix, [span for _, *span in items]))
            self._names.add(item_rows, repeated([name for name, *_ in items], len(rows)))
        for name, begin, end in items:
            if name == TAGS and "tags" in self._wanted:
                self._tags.add(rows, ascii_rows(matrix[:, begin:end]))
            if name == KEYS and "keys" in self._wanted:
                self._take_keys(rows, matrix[:, begin:end])

    def _take_keys(self, rows: Rows, texts: NDArray[np.uint8]) -> None:
        spaces = texts == _SPACE
        if not spaces.any():
            self._keys.add(rows, ascii_rows(texts))
        elif (spaces == spaces[0]).all():
            inside = np.concatenate([[False], ~spaces[0], [False]])
            spans = np.flatnonzero(inside[1:] != inside[:-1]).reshape(-1, 2).tolist()
            if spans:
                self._keys.add(np.repeat(rows, len(spans)), ascii_spans(texts, spans))
        else:
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
            item_rows = np.repeat(rows, counts)
            values = [value for one in decoded for value in one.values()]
            self._values.add(item_rows, pa.array(values, pa.string()))
            names = [name for one in decoded for name in one]
            self._names.add(item_rows, pa.array(names, pa.string()))
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

    def _map(self, count: int) -> pa.Array:
        rows, values = self._values.in_order()
        _, names = self._names.in_order()
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
