"""The checksum of bodies: CRC-32 (IEEE, reflected) with the top bit taken off. Spec 2.2.

ISA-L computes it; tests hold it equal to its definition by crcmod.
"""

from isal import isal_zlib

CRC_MASK = 0x7FFF_FFFF

crc32 = isal_zlib.crc32
"""All 32 bits, for those who mask themselves."""


def crc32_31(buffer: bytes | bytearray | memoryview) -> int:
    return crc32(buffer) & CRC_MASK
