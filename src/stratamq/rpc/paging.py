"""Tables that are larger than one answer: pages by position.

A table whose entries only come, at the end: a position is a number in it (`page`). A table of keys
with numbered entries, which come in any order and may go: a position is the number of its key, and
the least entry that has yet to be sent; keys only come, at the end (`nested_page`). In both a
reader gets every entry that is there from its first page to its last, and none twice.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from stratamq.errors import InvalidRequestError, UnavailableError

T = TypeVar("T")
K = TypeVar("K")

PAGE_ENTRIES = 500
"""Describing so many is about a millisecond of an event loop."""
EXAMINED_NAMES = 5_000
"""Looking for a text in so many is about a millisecond, too."""
PAGE_BYTES = 256 << 10
INCARNATION_BITS = 15
_PLACE_BITS = 48
_ENTRY_BITS = 31
"""The bits of a position in a nested table; 32 are left for the key's number."""


def page(
    entries: Sequence[T],
    place: int,
    wanted: int = 0,
    *,
    most: int = PAGE_ENTRIES,
    size: Callable[[T], int] = lambda _: 0,
) -> tuple[list[T], int]:
    """The entries from `place` on, and where the next page begins (0: there is none).

    At most `most` of them, and `wanted` if that is not 0; no more once their sizes in bytes come to
    PAGE_BYTES. InvalidRequestError for a negative place or number.
    """
    if place < 0 or wanted < 0:
        raise InvalidRequestError("a page's position and number of entries are not negative")
    taken: list[T] = []
    held_bytes = 0
    for entry in entries[place : place + min(wanted or most, most)]:
        taken.append(entry)
        held_bytes += size(entry)
        if held_bytes >= PAGE_BYTES:
            break
    following = place + len(taken)
    return taken, following if following < len(entries) else 0


def page_of_names(
    names: Sequence[str], place: int, wanted: int = 0, contains: str = "", *, most: int
) -> tuple[list[str], int]:
    """Like `page`, of the names that have `contains` in them, ignoring case. It looks at
    EXAMINED_NAMES at most: a page may have none of them, and further ones follow."""
    if not contains or place < 0:
        return page(names, place, wanted, most=most, size=len)
    sought, examined = contains.lower(), names[place : place + EXAMINED_NAMES]
    places = [number for number, name in enumerate(examined, place) if sought in name.lower()]
    taken, rest = page([names[one] for one in places], 0, wanted, most=most, size=len)
    following = places[rest] if rest else place + len(examined)
    return taken, following if following < len(names) else 0


def position_of(place: int, incarnation: int) -> int:
    """A place as a number on the wire, good for one start of the service; 0 stays 0."""
    return (incarnation % (1 << INCARNATION_BITS)) << _PLACE_BITS | place if place else 0


def place_of(position: int, incarnation: int) -> int:
    """UnavailableError for a position that another start of the service gave out: the order of its
    entries was another one. InvalidRequestError for a negative one."""
    if position < 0:
        raise InvalidRequestError("a page's position is not negative")
    if position and position >> _PLACE_BITS != incarnation % (1 << INCARNATION_BITS):
        raise UnavailableError(
            "the service was restarted while its table was read: start again from the first page"
        )
    return position % (1 << _PLACE_BITS)


# --- keys with numbered entries ---


@dataclass(frozen=True, slots=True)
class NestedPlace:
    """Entries from `entry` on of the key of this number, then those of the keys behind it."""

    key: int = 0
    entry: int = 0


class SortedEntries(Generic[T]):
    """The numbers of one key's entries in ascending order: those that were asked for last are kept,
    so that a key of many pages is not sorted for each."""

    def __init__(self) -> None:
        self._of: tuple[T, Hashable] | None = None
        self._sorted: list[int] = []

    def of(self, key: T, version: Hashable, entries: Callable[[], Iterable[int]]) -> Sequence[int]:
        """`version` is another one when `entries` gives others."""
        if self._of != (key, version):
            self._of, self._sorted = (key, version), sorted(entries())
        return self._sorted


def nested_page(
    keys: Sequence[K],
    entries_of: Callable[[K], Sequence[int]],
    place: NestedPlace,
    wanted: int = 0,
    *,
    most: int = PAGE_ENTRIES,
) -> tuple[list[tuple[K, int]], NestedPlace | None]:
    """The entries from `place` on, each with its key, and where the next page begins; None: there
    is none.

    `entries_of` gives numbers from 0 to INT32_MAX in ascending order. At most `most` entries of as
    many keys, and `wanted` entries if that is not 0: a page may be empty and not the last.
    InvalidRequestError for a negative number of entries.
    """
    if wanted < 0:
        raise InvalidRequestError("a page's number of entries is not negative")
    room = min(wanted or most, most)
    taken: list[tuple[K, int]] = []
    number, first = place.key, place.entry
    last = min(len(keys), number + most)
    while number < last and len(taken) < room:
        entries = entries_of(keys[number])
        begin = bisect_left(entries, first)
        end = min(begin + room - len(taken), len(entries))
        taken += [(keys[number], entry) for entry in entries[begin:end]]
        if end < len(entries):
            return taken, NestedPlace(number, entries[end - 1] + 1)
        number, first = number + 1, 0
    return taken, NestedPlace(number) if number < len(keys) else None


def nested_position_of(place: NestedPlace | None) -> int:
    """Encode as a number on the wire, valid with the incarnation of the keys; 0: no position."""
    return 0 if place is None else place.key << _ENTRY_BITS | place.entry


def nested_place_of(position: int, incarnation: int, keys_incarnation: int) -> NestedPlace:
    """UnavailableError for a position that was given out for another incarnation of the keys: their
    order was another one. InvalidRequestError for a negative one."""
    if position < 0:
        raise InvalidRequestError("a page's position is not negative")
    if position and incarnation != keys_incarnation:
        raise UnavailableError(
            "the service was restarted while its table was read: start again from the first page"
        )
    return NestedPlace(position >> _ENTRY_BITS, position % (1 << _ENTRY_BITS))
