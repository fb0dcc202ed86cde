"""Property texts that look alike, taken together.

Frames of one producer have property texts of equal length with names and separators in equal
places. A sample row gives the layout; whole rows are compared with it eight bytes at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.formats.columns import windows

U64 = NDArray[np.uint64]

_WORD = 8
_SEPARATORS = 2
"""Bytes up to this are NUL, 0x01 and 0x02."""
_THREES = np.uint64(0x0303030303030303)
_TOPS = np.uint64(0x8080808080808080)
_SPACES = np.uint64(0x2020202020202020)


@dataclass(frozen=True, slots=True)
class PropertyLayout:
    """Where the values lie in texts that look like one sample.

    Such a row has the sample's bytes everywhere but in values, and in values ASCII above 0x02, so
    that nothing in them divides or needs decoding.
    """

    items: tuple[tuple[str, int, int], ...]
    """Name, and the span of its value, in the order of a decoded map."""
    sample: U64
    fixed: U64
    """Bits of each word that are the sample's in every row."""
    free: U64
    """Bits of each word that belong to values."""


def layout_of(sample: bytes) -> PropertyLayout | None:
    """None when the sample is not read by spans: a name that comes twice, or text beyond ASCII."""
    items = tuple(
        (name.decode(), middle, end)
        for name, middle, end in _items_of(sample)
        if name.isascii() and name and end > middle
    )
    values = np.zeros(len(sample), np.bool_)
    for _, middle, end in items:
        values[middle:end] = True
    text = np.frombuffer(sample, np.uint8)
    if not sample.isascii() or len({name for name, _, _ in items}) < len(items):
        return None
    if (text[values] <= _SEPARATORS).any():
        return None
    fixed = np.where(values, 0, 0xFF).astype(np.uint8)
    return PropertyLayout(items, *map(_words, (text, fixed, ~fixed)))


def _words(text: NDArray[np.uint8]) -> U64:
    """Filled up with zeros in front: what stands before a text has no meaning in it."""
    return np.concatenate([np.zeros(-len(text) % _WORD, np.uint8), text]).view(np.uint64)


def _items_of(sample: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Name, where its value begins, where it ends."""
    at = 0
    for item in sample.split(b"\x02"):
        name, separator, _ = item.partition(b"\x01")
        yield name, at + len(name) + len(separator), at + len(item)
        at += len(item) + 1


class Texts:
    """Rows of equally long texts, gathered once. `rows` are the numbers of their frames."""

    def __init__(self, rows: NDArray[np.int64], padded: NDArray[np.uint8], width: int) -> None:
        self.rows = rows
        self._padded = padded
        self._width = width

    @classmethod
    def gather(
        cls,
        raw: NDArray[np.uint8],
        starts: NDArray[np.int64],
        rows: NDArray[np.int64],
        width: int,
    ) -> "Texts":
        """Texts of `width` bytes that begin at `starts`, each at least eight bytes into `raw`."""
        front = -width % _WORD
        return cls(rows, windows(raw, front + width)[starts - front], width)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The texts as rows of a view."""
        return self._padded[:, self._padded.shape[1] - self._width :]

    def like(self, layout: PropertyLayout) -> NDArray[np.bool_]:
        """Which rows have this layout."""
        different = np.zeros(len(self), np.uint64)
        words = self._padded.view(np.uint64)
        columns = zip(layout.sample, layout.fixed, layout.free, strict=True)
        for number, (sample, fixed, free) in enumerate(columns):
            word = words[:, number]
            if fixed:
                different |= (word ^ sample) & fixed
            if free:
                values = (word & free) | (_SPACES & ~free)
                # A byte below 3 borrows its top bit; one beyond ASCII has it.
                different |= ((values - _THREES) | values) & _TOPS
        return different == 0

    def where(self, mask: NDArray[np.bool_]) -> "Texts":
        return Texts(self.rows[mask], self._padded[mask], self._width)

    def behind(self, count: int) -> "Texts":
        return Texts(self.rows[count:], self._padded[count:], self._width)
