"""The offsets of all fields in a frame of the commit log (versions 1 and 2) and in a blank.

    #    off         size   field
    1    0           4      TOTALSIZE, of the whole frame
    2    4           4      MAGICCODE, 0xDAA320A7 (V1) or 0xDAA320AB (V2)
    3    8           4      BODYCRC, CRC-32 of the stored body with the top bit taken off
    4    12          4      QUEUEID
    5    16          4      FLAG, the producer's
    6    20          8      QUEUEOFFSET, index inside (topic, queue)
    7    28          8      PHYSICALOFFSET, of this frame
    8    36          4      SYSFLAG
    9    40          8      BORNTIMESTAMP, ms
    10   48          B      BORNHOST (8, or 20 by SYSFLAG)
    11   48+B        8      STORETIMESTAMP, ms
    12   56+B        S      STOREHOST (8, or 20 by SYSFLAG)
    13   56+B+S      4      RECONSUMETIMES
    14   60+B+S      8      PREPAREDTRANSACTIONOFFSET
    15   68+B+S      4      BODYLENGTH
    16   72+B+S      n      BODY
    17               1, 2   TOPICLENGTH, i8 in V1, i16 in V2
    18               t      TOPIC
    19               2      PROPERTIESLENGTH, i16
    20               p      PROPERTIES

    blank: i32 bytes remaining in the file (these 8 included), i32 0xCBD43194, then anything

All big-endian. No padding. Spec 2.2, 2.5, 2.6; apache/rocketmq@rocketmq-all-4.9.3 CommitLog.java.
"""

import struct

HEAD = struct.Struct(
    ">"
    "i"  # TOTALSIZE
    "I"  # MAGICCODE
    "i"  # BODYCRC
    "i"  # QUEUEID
    "i"  # FLAG
    "q"  # QUEUEOFFSET
    "q"  # PHYSICALOFFSET
    "i"  # SYSFLAG
    "q"  # BORNTIMESTAMP
)
AFTER_STORE_HOST = struct.Struct(
    ">"
    "i"  # RECONSUMETIMES
    "q"  # PREPAREDTRANSACTIONOFFSET
    "i"  # BODYLENGTH
)
BLANK = struct.Struct(
    ">"
    "i"  # bytes remaining in the file
    "I"  # magic
)
I8 = struct.Struct(">b")
I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
END_FILE_MIN_BLANK_LENGTH = BLANK.size
assert END_FILE_MIN_BLANK_LENGTH == 8

TOTAL_SIZE_POSITION = 0
MAGIC_POSITION = struct.calcsize(">i")
BODY_CRC_POSITION = struct.calcsize(">iI")
QUEUE_ID_POSITION = struct.calcsize(">iIi")
QUEUE_OFFSET_POSITION = struct.calcsize(">iIiii")
PHYSICAL_OFFSET_POSITION = struct.calcsize(">iIiiiq")
SYS_FLAG_POSITION = struct.calcsize(">iIiiiqq")
BORN_HOST_POSITION = HEAD.size
STORE_TIMESTAMP_POSITION_V4 = BORN_HOST_POSITION + 8
assert QUEUE_OFFSET_POSITION == 20
assert PHYSICAL_OFFSET_POSITION == 28
assert SYS_FLAG_POSITION == 36
assert BORN_HOST_POSITION == 48

FIXED_BYTES_WITHOUT_HOSTS = HEAD.size + I64.size + AFTER_STORE_HOST.size
"""Up to the body, without the two hosts."""
MIN_FRAME_BYTES = FIXED_BYTES_WITHOUT_HOSTS + 8 + 8 + I8.size + I16.size
assert MIN_FRAME_BYTES == 91

Buffer = bytes | bytearray | memoryview


def fits(total_size: int, remaining: int) -> bool:
    """The roll rule: a frame goes in only when a blank still fits behind it."""
    return total_size + END_FILE_MIN_BLANK_LENGTH <= remaining
