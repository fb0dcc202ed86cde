"""What `strace -f` saw of one process, as events in their order, and the gRPC messages of it.

A thread is stopped at the entry and at the exit of each traced call until strace has noted it.
So line numbers order what happened: a call whose result is above the line in which another one
begins was complete before the other one began. Of one direction of an HTTP/2 connection:

    connection: frames of    3 length   1 type   1 flags   4 stream id   payload
    DATA of one stream:      1 compressed   4 length   message   1 compressed …

Only DATA frames count; headers are not needed to distinguish the calls of a trial.
"""

import os
import re
import shutil
import struct
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stratamq_torture.processes.services import ServiceFailedError, until

RECEIVING = ("recvmsg", "recvfrom", "read", "readv")
SENDING = ("sendmsg", "sendto", "write", "writev", "sendmmsg")
FLUSHING = ("fdatasync", "fsync", "msync")
LONGEST_STRING = 1 << 20
END_S = 30.0
_TAIL_BYTES = 4096

_LINE = re.compile(r"^(\d+) +(.*)$")
_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")
_CALL = re.compile(r"^(\w+)\(\d+<(.*?)>, ?(.*)$|^(\w+)\(\d+<(.*?)>\)(.*)$")
_RESULT = re.compile(r"\) += (-?\d+)(?: .*)?$")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class SystemCall:
    """`target` is what the descriptor stands for: a path, or `TCP:[here->there]`. `begun` and
    `ended` are line numbers; `data` what was sent or received."""

    begun: int
    ended: int
    name: str
    target: str
    data: bytes
    result: int


@cache
def missing() -> str:
    """Why nothing can be traced here; empty when it can. Tries it, once."""
    if shutil.which("strace") is None:
        return "strace is missing: apt-get install -y --no-install-recommends strace"
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], check=False, capture_output=True)
    if tried.returncode != 0:
        reason = tried.stderr.decode(errors="replace").strip()
        return f"strace may not trace here (in a container: --cap-add SYS_PTRACE): {reason}"
    return ""


def command(output: Path) -> list[str]:
    """What is put before the command line to trace. The process stays our child (`-D`)."""
    calls = ",".join((*RECEIVING, *SENDING, *FLUSHING))
    shown = ("-v", "-s", str(LONGEST_STRING), "-yy", "-e", f"trace={calls}", "-e", "signal=none")
    return ["strace", "-D", "-f", *shown, "-o", str(output)]


def wait_complete(output: Path, pid: int) -> None:
    """Until strace, which outlives the process by a moment, has noted its end."""
    end = re.compile(rf"^{pid} +\+\+\+ ".encode(), re.MULTILINE)

    def complete() -> bool:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - _TAIL_BYTES))
            return end.search(file.read()) is not None

    if not until(complete, END_S):
        raise ServiceFailedError(f"strace has not noted the end of process {pid} in {output}")


def parse(lines: Iterable[str]) -> Iterator[SystemCall]:
    """Calls on files and TCP connections that came to an end, in the order of their ends."""
    open_calls: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines):
        match = _LINE.match(line.rstrip("\n"))
        if match is None:
            continue
        thread, text = match.groups()
        begun = number
        if text.endswith(_UNFINISHED):
            open_calls[thread] = (number, text.removesuffix(_UNFINISHED))
            continue
        resumed = _RESUMED.match(text)
        if resumed is not None:
            if thread not in open_calls:
                continue
            begun, head = open_calls.pop(thread)
            text = head + resumed[2]
        call = _call(begun, number, text)
        if call is not None:
            yield call


def _call(begun: int, ended: int, text: str) -> SystemCall | None:
    match, result = _CALL.match(text), _RESULT.search(text)
    if match is None or result is None:
        return None
    name, target = match[1] or match[4], match[2] or match[5]
    count = int(result[1])
    data = b""
    if target.startswith("TCP") and count > 0:
        data = b"".join(_bytes(each) for each in _STRING.findall(match[3] or ""))[:count]
    return SystemCall(begun, ended, name, target, data, count)


def _bytes(quoted: str) -> bytes:
    """A string as strace writes it, with the escapes of C."""
    return quoted.encode("latin-1").decode("unicode_escape").encode("latin-1")


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
