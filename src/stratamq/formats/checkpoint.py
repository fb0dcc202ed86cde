"""The checkpoint: up to which store time flushes have covered log, queues and index.

    off   size   field
    0     8      physicMsgTimestamp, ms
    8     8      logicsMsgTimestamp, ms
    16    8      indexMsgTimestamp, ms
    24    8      masterFlushedOffset      (5.x)
    32    8      confirmPhyOffset         (5.x)
    40    8      logicsPhysicalOffset     (5.5.1)
    48    …      zeros, up to 4096

Spec 8.1. The times are store times of messages, not times of flushes.
"""

import struct
from dataclasses import dataclass

_FIELDS = struct.Struct(
    ">"
    "q"  # physicMsgTimestamp
    "q"  # logicsMsgTimestamp
    "q"  # indexMsgTimestamp
    "q"  # masterFlushedOffset
    "q"  # confirmPhyOffset
    "q"  # logicsPhysicalOffset
)
CHECKPOINT_FIELDS_BYTES = _FIELDS.size
CHECKPOINT_FILE_BYTES = 4096
assert CHECKPOINT_FIELDS_BYTES == 48

SAFETY_MARGIN_MS = 3000
"""RocketMQ looks back three seconds further than the flushed time."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    @property
    def min_timestamp_ms(self) -> int:
        """Abnormal recovery begins at a file whose first message is not newer than this."""
        earliest = min(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms)
        return max(0, earliest - SAFETY_MARGIN_MS)

    @property
    def min_timestamp_index_ms(self) -> int:
        return min(self.min_timestamp_ms, self.index_msg_timestamp_ms)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The whole file."""
    return _FIELDS.pack(
        checkpoint.physic_msg_timestamp_ms,
        checkpoint.logics_msg_timestamp_ms,
        checkpoint.index_msg_timestamp_ms,
        checkpoint.master_flushed_offset,
        checkpoint.confirm_phy_offset,
        checkpoint.logics_physical_offset,
    ).ljust(CHECKPOINT_FILE_BYTES, b"\0")


def decode_checkpoint(buffer: bytes | bytearray | memoryview) -> Checkpoint | None:
    """None when fewer than 48 bytes are there."""
    if len(buffer) < CHECKPOINT_FIELDS_BYTES:
        return None
    return Checkpoint(*_FIELDS.unpack_from(buffer))
