"""The checksum of bodies: CRC-32 (IEEE, reflected) with the top bit taken off. Spec 2.2.

crcmod defines it, ISA-L computes it; a test holds them equal.
"""

import crcmod
from isal import isal_zlib

CRC_MASK = 0x7FFF_FFFF

_POLYNOMIAL = 0x1_04C1_1DB7
_reference = crcmod.mkCrcFun(_POLYNOMIAL, initCrc=0, rev=True, xorOut=0xFFFF_FFFF)
crc32 = isal_zlib.crc32
"""All 32 bits, for those who mask themselves."""


def crc32_31(buffer: bytes | bytearray | memoryview) -> int:
    return crc32(buffer) & CRC_MASK


def reference_crc32_31(data: bytes) -> int:
    """The definition, slow; for tests."""
    return _reference(data) & CRC_MASK
