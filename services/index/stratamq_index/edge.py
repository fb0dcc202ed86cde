"""The message at which an index file ends may have more keys, and they are in the next one."""

from collections import Counter

import numpy as np

from stratamq.formats.index_columns import IndexKeys
from stratamq_index.index_file import EdgeKeys


class EdgeFilter:
    """Leaves out of a stream of keys, in log order, what an index that ends at `edge` has."""

    def __init__(self, edge: EdgeKeys | None) -> None:
        self._edge = edge

    @property
    def offset(self) -> int:
        """Belongs to the message that the index ends with; −1 when everything that comes is new."""
        return self._edge.physical_offset if self._edge is not None else -1

    def without_known(self, keys: IndexKeys) -> IndexKeys:
        edge = self._edge
        if edge is None or not len(keys):
            return keys
        unknown = keys.physical_offset > edge.physical_offset
        known = Counter(edge.key_hashes)
        for row in np.flatnonzero(keys.physical_offset == edge.physical_offset).tolist():
            key_hash = int(keys.key_hash[row])
            if known[key_hash]:
                known[key_hash] -= 1
            else:
                unknown[row] = True
        if int(keys.physical_offset[-1]) > edge.physical_offset:
            self._edge = None
        return keys[unknown]


def without_following(keys: IndexKeys, after: EdgeKeys | None) -> IndexKeys:
    """Leave out what a file that begins with `after` has: the last keys of that message, and all
    that comes behind it."""
    if after is None or not len(keys):
        return keys
    ours = keys.physical_offset < after.physical_offset
    theirs = Counter(after.key_hashes)
    for row in np.flatnonzero(keys.physical_offset == after.physical_offset)[::-1].tolist():
        key_hash = int(keys.key_hash[row])
        if theirs[key_hash]:
            theirs[key_hash] -= 1
        else:
            ours[row] = True
    return keys[ours]
