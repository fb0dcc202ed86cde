"""A generation's number: who writes a stretch of the log. Larger is later; 0 is none.

bits 62–51   term: how many promotions came before
bits 50–27   starts of masters in this log
bits 26–0    at random, so that no two brokers invent the same
"""

from collections.abc import Iterable
from typing import NamedTuple

TERM_BITS, STARTS_BITS, RANDOM_BITS = 12, 24, 27
assert TERM_BITS + STARTS_BITS + RANDOM_BITS == 63

GREATEST_TERM = (1 << TERM_BITS) - 1
SLOTS = 8
"""At most so many members has a cluster; a term belongs to the member of slot term mod 8."""
LARGEST_TERM_STEP = 256
"""A member takes no term that is more above its own: a single message cannot use up all terms."""


def next_term(known: int, slot: int | None) -> int:
    """The smallest term above `known` that belongs to `slot`; None: the next one, of a broker
    without members. It may lie beyond GREATEST_TERM."""
    if slot is None:
        return known + 1
    return known + 1 + (slot - known - 1) % SLOTS


def slot_of(term: int) -> int:
    """Return the slot of the only member that may open the term."""
    return term % SLOTS


def make_number(term: int, starts: int, chance: int) -> int:
    """`chance` has RANDOM_BITS bits."""
    return (term << (STARTS_BITS + RANDOM_BITS)) | (starts << RANDOM_BITS) | chance


def term_of(number: int) -> int:
    return number >> (STARTS_BITS + RANDOM_BITS)


class Generation(NamedTuple):
    """A stretch of history, from log offset `start` up to the next one or the log's end."""

    number: int
    start: int

    @property
    def term(self) -> int:
        """How many promotions came before."""
        return term_of(self.number)


def last_term(generations: Iterable[tuple[int, int]]) -> int:
    """The highest term of a history, pairs of (number, start); 0 of one that is empty."""
    return max((term_of(number) for number, _ in generations), default=0)


def starts_of(number: int) -> int:
    return (number >> RANDOM_BITS) & ((1 << STARTS_BITS) - 1)
