"""Tables that are larger than one answer: pages by position.

Entries only come, at the end, so that a position stays what it is while a reader goes from page to
page. A reader sees every entry that was there when it began.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from stratamq.errors import InvalidRequestError, UnavailableError

T = TypeVar("T")

PAGE_ENTRIES = 500
"""Describing so many is about a millisecond of an event loop."""
PAGE_BYTES = 256 << 10
INCARNATION_BITS = 15
_PLACE_BITS = 48


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


def position_of(place: int, incarnation: int) -> int:
    """A place as a number on the wire, good for one start of the service; 0 stays 0."""
    return (incarnation % (1 << INCARNATION_BITS)) << _PLACE_BITS | place if place else 0


def place_of(position: int, incarnation: int) -> int:
    """UnavailableError for a position that another start of the service gave out: the order of its
    entries was another one. InvalidRequestError for a negative one."""
    if position < 0:
        raise InvalidRequestError("a page's position is not negative")
    if position and position >> _PLACE_BITS != incarnation % (1 << INCARNATION_BITS):
        raise UnavailableError("the service was started again while its table was read: read anew")
    return position % (1 << _PLACE_BITS)
