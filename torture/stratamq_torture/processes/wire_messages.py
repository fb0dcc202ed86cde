"""gRPC messages out of the bytes of one direction of an HTTP/2 connection.

    connection: frames of    3 length   1 type   1 flags   4 stream id   payload
    DATA of one stream:      1 compressed   4 length   message   1 compressed …

Only DATA frames count; headers are not needed to distinguish the calls of a trial.
"""

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME = struct.Struct(">HBBBI")  # length in 2 + 1 bytes, type, flags, stream id
_MESSAGE = struct.Struct(">BI")  # compressed, length
_DATA, _PADDED = 0, 0x08


@dataclass(frozen=True, slots=True)
class WireMessage:
    """`begun` and `ended`: the marks of the pieces with its first and its last byte."""

    stream: int
    begun: int
    ended: int
    content: bytes


class Direction:
    """Feed it what was sent or received, piece by piece, each with a mark that grows."""

    def __init__(self) -> None:
        self._raw = _Marked()
        self._at_start = True
        self._streams: dict[int, _Marked] = {}

    def feed(self, data: bytes, mark: int) -> Iterator[WireMessage]:
        """The messages that `data` completes."""
        raw = self._raw
        raw.add(data, mark, mark)
        if self._at_start and len(raw.content) >= len(PREFACE):
            if raw.content.startswith(PREFACE):
                raw.take(len(PREFACE))
            self._at_start = False
        while len(raw.content) >= _FRAME.size:
            high, low, kind, flags, stream = _FRAME.unpack_from(raw.content)
            end = _FRAME.size + (high << 8 | low)
            if len(raw.content) < end:
                return
            frame, begun, ended = raw.take(end)
            if kind == _DATA:
                payload = frame[_FRAME.size :]
                if flags & _PADDED:
                    payload = payload[1 : len(payload) - payload[0]]
                yield from self._take(stream, payload, begun, ended)

    def _take(self, stream: int, payload: bytes, begun: int, ended: int) -> Iterator[WireMessage]:
        waiting = self._streams.setdefault(stream, _Marked())
        waiting.add(payload, begun, ended)
        while len(waiting.content) >= _MESSAGE.size:
            _, length = _MESSAGE.unpack_from(waiting.content)
            if len(waiting.content) < _MESSAGE.size + length:
                return
            message, first, last = waiting.take(_MESSAGE.size + length)
            yield WireMessage(stream, first, last, message[_MESSAGE.size :])


class _Marked:
    """Bytes that remember with which piece they came."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._pieces: deque[tuple[int, int, int]] = deque()

    def add(self, data: bytes, begun: int, ended: int) -> None:
        if data:
            self.content += data
            self._pieces.append((len(data), begun, ended))

    def take(self, size: int) -> tuple[bytes, int, int]:
        """`size` bytes that are there, the mark of the first one's beginning and of the last one's
        end."""
        taken = bytes(self.content[:size])
        del self.content[:size]
        begun, ended = self._pieces[0][1], self._pieces[0][2]
        while size:
            length, piece_begun, ended = self._pieces.popleft()
            if length > size:
                self._pieces.appendleft((length - size, piece_begun, ended))
            size -= min(size, length)
        return taken, begun, ended
