"""Frames of a size and so many bytes, received without copies where they are large.

    u32 size of what follows, big-endian | …

asyncio's own reading makes a buffer of 256 KiB for each read, and joins what comes in pieces. Here
what arrives is read into one buffer, which all connections of a thread's event loop have, so that
those that wait cost no memory; and a frame that is larger than that into a buffer of its own.
"""

import asyncio
import struct
import threading
from typing import Any

SIZE = struct.Struct(">I")
KEPT_BYTES = 64 << 10
Frame = bytes | memoryview
"""Small ones are bytes; a view of a large one keeps its buffer, which nothing else uses."""


class SizedFrames(asyncio.BufferedProtocol):
    """The receiving side of one connection. Belongs to the event loop."""

    transport: asyncio.Transport | None = None
    """None before the connection was made, and once it was lost."""
    longest: int | None = None
    """The most bytes of a frame; a longer one ends the connection. None: the peer is trusted."""

    def __init__(self) -> None:
        self._rest = b""
        """What was received, and is not taken yet."""
        self._large: memoryview | None = None
        self._filled = 0

    def received(self, frame: Frame | None) -> None:
        """What follows a frame's size; None for an end."""
        raise NotImplementedError

    def ends(self, size: int) -> bool:
        """Whether this is no size: nothing follows it."""
        return False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> Any:
        if self._large is not None:
            return self._large[self._filled :]
        # The event loop receives into it, and calls `buffer_updated`, before anything else.
        buffer = _received.buffer
        if self._rest:
            buffer[: len(self._rest)] = self._rest
        return buffer[len(self._rest) :]

    def buffer_updated(self, nbytes: int) -> None:
        large = self._large
        if large is not None:
            self._filled += nbytes
            if self._filled == len(large):
                self._large = None
                self.received(large)
            return
        end, self._rest = len(self._rest) + nbytes, b""
        self._take(_received.buffer[:end])

    def _take(self, given: memoryview) -> None:
        at, end = 0, len(given)
        size = 0
        while end - at >= SIZE.size:
            (size,) = SIZE.unpack_from(given, at)
            if self.ends(size):
                at += SIZE.size
                self.received(None)
                continue
            if self.longest is not None and size > self.longest:
                self.close()
                return
            begin = at + SIZE.size
            if begin + size > end:
                break
            at = begin + size
            self.received(bytes(given[begin:at]))
        rest = end - at
        if rest >= SIZE.size and SIZE.size + size > KEPT_BYTES:
            self._large = memoryview(bytearray(size))
            self._filled = rest - SIZE.size
            self._large[: self._filled] = given[at + SIZE.size : end]
        elif rest:
            self._rest = bytes(given[at:end])

    def send(self, head: bytes, body: Frame = b"") -> None:
        """One after the other; a large body is not copied."""
        if self.transport is None:
            return
        if len(body) > KEPT_BYTES:
            self.transport.write(head)
            self.transport.write(body)
        else:
            self.transport.write(b"".join((head, body)))

    def close(self) -> None:
        """What was written is sent first."""
        if self.transport is not None:
            self.transport.close()


class _Received(threading.local):
    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(KEPT_BYTES))


_received = _Received()
