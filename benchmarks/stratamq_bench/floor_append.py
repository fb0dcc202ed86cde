"""The unavoidable work of a batch append, in one process and nothing else.

Per batch of complete frames: read the lengths, check size, magic and body CRC of every frame, patch
queue offset, physical offset, store time and store host, and copy the bytes once into an allocated,
mapped segment. No gRPC, no topics, no flush, no dispatch: what a real engine is measured against in
the same minute.

    python -m stratamq_bench.child floor_append.append record_crc=true seconds=5

With record_crc frames end in room for a checksum of the whole record (spec 2.5), and each append
computes it and writes its ten digits: what an engine that protects the whole record cannot avoid.

The constants are its own on purpose: a floor shares no code with what is
measured against it.
"""

import mmap
import os
import struct
import tempfile
import time
from collections.abc import Sequence

import numpy as np
from isal import isal_zlib

SEGMENT_BYTES = 1 << 28
MAGIC = 0xDAA320A7
HEADER = struct.Struct(">iIiiiqqiq8sq8siqi")  # the frame up to and with BODYLENGTH, IPv4 hosts
HEADER_BYTES = HEADER.size
assert HEADER_BYTES == 88
HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
BORN_MS = 1_700_000_000_000
crc32 = isal_zlib.crc32
RECORD_CRC = b"\x02__CRC32#\x01" + b"0" * 10 + b"\x02"  # behind a property without separator
RECORD_CRC_BYTES = len(RECORD_CRC) - 1
POWERS_OF_TEN = 10 ** np.arange(10)


def encode_batch(
    bodies: Sequence[bytes],
    topic: bytes = b"TopicTest",
    first_key: int = 0,
    record_crc: bool = False,
) -> tuple[bytes, bytes]:
    """Frames as a producer sends them: broker fields blank.

    Returns (lengths as big-endian u32, frames).
    """
    topic_field = bytes((len(topic),)) + topic
    parts: list[bytes] = []
    lengths = []
    tail = RECORD_CRC if record_crc else b""
    for number, body in enumerate(bodies, first_key):
        properties = b"UNIQ_KEY\x01%032X\x02TAGS\x01TagA" % number + tail
        size = HEADER_BYTES + len(body) + len(topic_field) + 2 + len(properties)
        crc = crc32(body) & 0x7FFFFFFF
        parts += (
            HEADER.pack(
                size, MAGIC, crc, 0, 0, 0, 0, 0, BORN_MS, HOST, 0, bytes(8), 0, 0, len(body)
            ),
            body,
            topic_field,
            len(properties).to_bytes(2, "big"),
            properties,
        )
        lengths.append(size)
    return struct.pack(f">{len(lengths)}I", *lengths), b"".join(parts)


class Segment:
    """A mapped, allocated file that starts again at zero when it is full."""

    def __init__(self, directory: str | None, record_crc: bool = False) -> None:
        self.record_crc = record_crc
        self.fd, path = tempfile.mkstemp(dir=directory)
        os.unlink(path)
        os.posix_fallocate(self.fd, 0, SEGMENT_BYTES)
        self.bytes = np.frombuffer(mmap.mmap(self.fd, SEGMENT_BYTES), np.uint8)
        self.position = self.queue_offset = 0

    def append(self, lengths: bytes, frames: bytes | memoryview) -> int:
        """Check, patch, copy. Returns the first queue offset."""
        source = np.frombuffer(bytearray(frames), np.uint8)  # private: patched before it is visible
        sizes = np.frombuffer(lengths, ">u4").astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        if starts[-1] + sizes[-1] != len(source):
            raise ValueError("lengths do not add up")
        windows = np.lib.stride_tricks.sliding_window_view(source, HEADER_BYTES)
        headers = windows[starts].view(">u4")
        if (headers[:, 0] != sizes).any() or (headers[:, 1] != MAGIC).any():
            raise ValueError("size or magic")
        view = memoryview(frames)
        bodies = starts + HEADER_BYTES
        for begin, end, expected in zip(
            bodies.tolist(),
            (bodies + headers[:, 21]).tolist(),
            headers[:, 2].tolist(),
            strict=False,
        ):
            if crc32(view[begin:end]) & 0x7FFFFFFF != expected:
                raise ValueError("body CRC")
        if self.position + len(source) + 8 > SEGMENT_BYTES:
            self.position = 0
        first = self.queue_offset
        eight, sixteen = np.arange(8), np.arange(16)
        queue_offsets = np.arange(first, first + len(sizes), dtype=">i8")
        source[(starts + 20)[:, None] + eight] = queue_offsets.view(np.uint8).reshape(-1, 8)
        offsets = (self.position + starts).astype(">i8")
        source[(starts + 28)[:, None] + eight] = offsets.view(np.uint8).reshape(-1, 8)
        stamp = struct.pack(">q8s", int(time.time() * 1000), HOST)
        source[(starts + 56)[:, None] + sixteen] = np.frombuffer(stamp, np.uint8)
        if self.record_crc:
            ends = starts + sizes - RECORD_CRC_BYTES
            patched = source.data
            crcs = [
                crc32(patched[begin:end]) & 0x7FFFFFFF
                for begin, end in zip(starts.tolist(), ends.tolist(), strict=False)
            ]
            digits = np.array(crcs)[:, None] // POWERS_OF_TEN % 10 + ord("0")
            source[(ends + 9)[:, None] + np.arange(10)] = digits.astype(np.uint8)
        self.bytes[self.position + 8 : self.position + len(source)] = source[8:]
        self.bytes[self.position : self.position + 8] = source[:8]  # published last
        self.position += len(source)
        self.queue_offset += len(sizes)
        return first

    def touch_every_page(self, lengths: bytes, frames: bytes) -> None:
        for _ in range(SEGMENT_BYTES // len(frames) + 1):
            self.append(lengths, frames)

    def close(self) -> None:
        os.close(self.fd)


def run_for(
    seconds: float, segment: Segment, lengths: bytes, frames: bytes
) -> tuple[int, float, float]:
    """Append until the time is over. Returns (batches, CPU seconds, wall seconds)."""
    batches, cpu, wall = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() - wall < seconds:
        for _ in range(16):
            segment.append(lengths, frames)
        batches += 16
    return batches, time.process_time() - cpu, time.perf_counter() - wall


def append(
    *,
    batch: int = 64,
    body: int = 1024,
    seconds: float = 5.0,
    record_crc: bool = False,
    directory: str | None = None,
) -> dict[str, object]:
    bodies = [os.urandom(body) for _ in range(batch)]
    lengths, frames = encode_batch(bodies, record_crc=record_crc)
    segment = Segment(directory, record_crc)
    segment.touch_every_page(lengths, frames)
    batches, cpu, wall = run_for(seconds, segment, lengths, frames)
    messages = batches * batch
    return {
        "messages_per_s": round(messages / wall),
        "cpu_us_per_message": round(cpu / messages * 1e6, 3),
    }
