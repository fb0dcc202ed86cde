"""Where a batch of a stream is divided: at beginnings of frames that the driver has walked over.

A running broker reads from a frame's beginning on, and only who has walked over the frames knows
where they begin. The places are stored with the end of the batch in the checkpoint, so that a batch
that is done again is divided alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MAX_PLACES = 8192
"""So many are kept while the driver walks; in a longer batch they are farther apart."""
MAX_CUTS = 1024
"""So many are stored in a checkpoint at most."""


@dataclass(slots=True)
class FramePlaces:
    """Beginnings of frames, in order, at least `apart_bytes` from each other."""

    places: list[int] = field(default_factory=list)
    apart_bytes: int = 1

    def add(self, places: NDArray[np.int64]) -> None:
        """Add those of further frames, which lie behind the known ones."""
        self._take(places)
        while len(self.places) > MAX_PLACES:
            self.apart_bytes *= 2
            known, self.places = self.places, []
            self._take(np.array(known, np.int64))

    def cuts(self, begin: int, end: int, part_bytes: int) -> list[int]:
        """Places between `begin` and `end` that divide the range into parts of about `part_bytes`:
        each at the first known frame behind its share of the range."""
        count = min(-(-(end - begin) // part_bytes), MAX_CUTS + 1)
        shares = [begin + (end - begin) * number // count for number in range(1, count)]
        known = np.array(self.places, np.int64)
        found = np.searchsorted(known, shares)
        chosen = {self.places[at] for at in found.tolist() if at < len(known)}
        return sorted(place for place in chosen if begin < place < end)

    def _take(self, places: NDArray[np.int64]) -> None:
        if self.apart_bytes == 1:
            self.places += places.tolist()
            return
        # The first in each stretch of `apart_bytes`.
        stretches = places // self.apart_bytes
        first = np.flatnonzero(np.diff(stretches, prepend=-1))
        if self.places and len(first) and self.places[-1] // self.apart_bytes == stretches[0]:
            first = first[1:]
        self.places += places[first].tolist()


def bounds_of(begin: int, end: int, cuts: Sequence[int]) -> list[int]:
    """The range's ends, and the cuts within."""
    return [begin, *(cut for cut in sorted(cuts) if begin < cut < end), end]
