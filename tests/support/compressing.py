"""Bodies as clients compress them."""

import zlib

import lz4.frame
import zstandard

from stratamq.formats.sysflag import COMPRESSED, COMPRESSION_SHIFT, Compression


def compress_body(body: bytes, compression: Compression) -> tuple[bytes, int]:
    """The compressed body and its SYSFLAG bits."""
    packed = {
        Compression.ZLIB: zlib.compress,
        Compression.LZ4: lz4.frame.compress,
        Compression.ZSTD: zstandard.ZstdCompressor().compress,
    }[compression](body)
    return packed, COMPRESSED | (compression << COMPRESSION_SHIFT)
