"""The definition of the checksum of bodies, slow. Spec 2.2."""

import crcmod

from stratamq.formats.crc import CRC_MASK

_POLYNOMIAL = 0x1_04C1_1DB7
_reference = crcmod.mkCrcFun(_POLYNOMIAL, initCrc=0, rev=True, xorOut=0xFFFF_FFFF)


def reference_crc32_31(data: bytes) -> int:
    return _reference(data) & CRC_MASK
