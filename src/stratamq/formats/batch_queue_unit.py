"""The unit of a batch consume queue (5.x, `batchconsumequeue/`); only read here.

    off   size   field
    0     8      physical offset
    8     4      size
    12    8      tags code
    20    8      store timestamp, ms
    28    8      first queue index of the batch
    36    2      number of messages
    38    4      compacted offset, −1 = none
    42    4      reserved

Spec 6.9.
"""

import struct
from dataclasses import dataclass

from stratamq.formats.numbers import Offset, QueueIndex

BATCH_QUEUE_UNIT = struct.Struct(
    ">"
    "q"  # physical offset
    "i"  # size
    "q"  # tags code
    "q"  # store timestamp
    "q"  # first queue index
    "h"  # number of messages
    "i"  # compacted offset
    "i"  # reserved
)
BATCH_QUEUE_UNIT_BYTES = BATCH_QUEUE_UNIT.size
assert BATCH_QUEUE_UNIT_BYTES == 46


@dataclass(frozen=True, slots=True)
class BatchQueueUnit:
    physical_offset: Offset
    size: int
    tags_code: int
    store_timestamp_ms: int
    first_queue_index: QueueIndex
    message_count: int
    compacted_offset: int
    reserved: int

    @property
    def is_valid(self) -> bool:
        return self.physical_offset >= 0 and self.size > 0


def decode_batch_queue_unit(
    buffer: bytes | bytearray | memoryview, position: int = 0
) -> BatchQueueUnit | None:
    """None when fewer than 46 bytes are left."""
    if len(buffer) - position < BATCH_QUEUE_UNIT_BYTES:
        return None
    return BatchQueueUnit(*BATCH_QUEUE_UNIT.unpack_from(buffer, position))
