"""Bodies that clients compressed, marked in SYSFLAG. Spec 2.4.

    SYSFLAG & 0x1 == 0      plain
    type 0 or 3             zlib stream
    type 1                  LZ4 frame
    type 2                  Zstandard frame

The store keeps bodies as they come; only people and programs that look into them need this.
"""

import zlib

import lz4.frame
import zstandard

from stratamq.errors import CorruptRecordError
from stratamq.formats.sysflag import (
    Compression,
    compression_of,
)

MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
"""A small body can claim to be terabytes."""


def decompress_body(body: bytes, sys_flag: int, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The body as the producer had it.

    CorruptRecordError: reason `compression_type` for an undefined type, `compression` for bytes
    that are no such stream or end early, `too_large` for more than `max_bytes`.
    """
    try:
        compression = compression_of(sys_flag)
    except ValueError as error:
        raise CorruptRecordError(str(error), 0, "compression_type") from error
    if compression is None:
        return body
    try:
        plain, complete = _DECOMPRESS[compression](body, max_bytes + 1)
    except (zlib.error, RuntimeError, zstandard.ZstdError, EOFError, MemoryError) as error:
        raise CorruptRecordError(
            f"the body is no {compression.name} stream: {error}", 0, "compression"
        ) from error
    if len(plain) > max_bytes:
        raise CorruptRecordError(
            f"the body has more than {max_bytes} bytes when decompressed", 0, "too_large"
        )
    if not complete:
        raise CorruptRecordError(f"the {compression.name} stream ends early", 0, "compression")
    return plain


def _zlib(body: bytes, max_bytes: int) -> tuple[bytes, bool]:
    stream = zlib.decompressobj()
    plain = stream.decompress(body, max_bytes)
    return plain, stream.eof


def _lz4(body: bytes, max_bytes: int) -> tuple[bytes, bool]:
    stream = lz4.frame.LZ4FrameDecompressor()
    plain = stream.decompress(body, max_bytes)
    return plain, stream.eof


def _zstd(body: bytes, max_bytes: int) -> tuple[bytes, bool]:
    """In small pieces, because `decompressobj` has no limit of its own."""
    stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()
    pieces: list[bytes] = []
    size = 0
    for start in range(0, len(body), _ZSTD_PIECE_BYTES):
        if stream.eof or size >= max_bytes:
            break
        pieces.append(stream.decompress(body[start : start + _ZSTD_PIECE_BYTES]))
        size += len(pieces[-1])
    return b"".join(pieces), stream.eof


_ZSTD_WINDOW_BYTES = 1 << 27
"""What the command `zstd` accepts by default."""
_ZSTD_PIECE_BYTES = 256
"""A block of 4 bytes can stand for 128 KiB, so one piece never gives more than 8 MiB."""
_DECOMPRESS = {Compression.ZLIB: _zlib, Compression.LZ4: _lz4, Compression.ZSTD: _zstd}
