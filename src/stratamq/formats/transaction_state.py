"""The state table of transactions of RocketMQ 3.1: what became of each prepared message.

    off   size   field
    0     8      physical offset of the prepared frame
    8     4      its size
    12    4      store time, in seconds
    16    4      Java's hash of the producer group
    20    4      state: 4 prepared, 8 committed, 12 rolled back

Spec 13.3, decision 095. Files `transaction/statetable/<offset>` of 2 000 000 units; unit i of the
table is at byte 24·i, and a prepared frame has i as its QUEUEOFFSET. Valid means offset ≥ 0,
size > 0 and a state that is one, so that unwritten (zeroed) space ends the table.
`transaction/redolog` beside it is a consume queue (`formats/queue_unit.py`).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from stratamq.formats.sysflag import (
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

_UNIT = struct.Struct(
    ">"
    "q"  # physical offset
    "i"  # size
    "i"  # store time, s
    "i"  # hash of the producer group
    "i"  # state
)
STATE_UNIT_BYTES = _UNIT.size
assert STATE_UNIT_BYTES == 24

STATES = {
    TRANSACTION_PREPARED: "prepared",
    TRANSACTION_COMMIT: "committed",
    TRANSACTION_ROLLBACK: "rolled back",
}


@dataclass(frozen=True, slots=True)
class TransactionState:
    physical_offset: int
    size: int
    store_time_s: int
    group_hash: int
    state: int

    @property
    def is_valid(self) -> bool:
        return self.physical_offset >= 0 and self.size > 0 and self.state in STATES


def iter_states(buffer: bytes | memoryview) -> Iterator[TransactionState]:
    """The valid units from the beginning, up to the first that is not."""
    whole = memoryview(buffer)[: len(buffer) - len(buffer) % STATE_UNIT_BYTES]
    for fields in _UNIT.iter_unpack(whole):
        unit = TransactionState(*fields)
        if not unit.is_valid:
            return
        yield unit
