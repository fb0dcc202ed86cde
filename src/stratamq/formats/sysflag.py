"""SYSFLAG: the bits by which broker and client agree on how to read a frame. Spec 2.4.

bit    mask    meaning
0      0x001   the body is compressed
1      0x002   several tags (makes no difference to the store)
2–3    0x00C   transaction: 0 none, 4 prepared, 8 commit, 12 rollback; a field, not two bits
4      0x010   BORNHOST is IPv6 (20 bytes instead of 8)
5      0x020   STOREHOST is IPv6
6      0x040   5.x: the frame is a batch that must be unwrapped
7      0x080   5.x: one frame holds a whole batch
8–10   0x700   5.x: how the body is compressed: 0 zlib, 1 LZ4, 2 Zstandard, 3 zlib
"""

from enum import IntEnum

COMPRESSED = 0x1
MULTI_TAGS = 0x2

TRANSACTION_MASK = 0xC
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC

BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80

COMPRESSION_MASK = 0x700
COMPRESSION_SHIFT = 8

TAKEN_FLAGS = COMPRESSED | MULTI_TAGS | COMPRESSION_MASK
"""What the log takes of a single message's flags; the others it sets itself."""


class Compression(IntEnum):
    """The numbers of the field; 0 means zlib too, because 4.x had no field."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_type(sys_flag: int) -> int:
    return sys_flag & TRANSACTION_MASK


def is_in_queue(sys_flag: int) -> bool:
    """Prepared and rollback frames are in no consume queue and take no queue index."""
    return sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)


def compression_of(sys_flag: int) -> Compression | None:
    """None when the body is plain. ValueError for an undefined type."""
    if not sys_flag & COMPRESSED:
        return None
    number = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    return Compression.ZLIB if number == 0 else Compression(number)


def host_bytes(sys_flag: int) -> tuple[int, int]:
    """Sizes of BORNHOST and STOREHOST."""
    return (20 if sys_flag & BORN_HOST_V6 else 8), (20 if sys_flag & STORE_HOST_V6 else 8)
