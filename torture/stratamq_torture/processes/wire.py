"""A TCP proxy whose own address stays: it is led elsewhere, cut and held at will. What goes through
it arrives in order, or not at all.

wire = Wire(NOWHERE)
wire.lead_to("127.0.0.1:41231")
wire.cut()
wire.close()
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Self

NOWHERE = "127.0.0.1:9"
"""The discard port: no process listens."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: a close sends RST, and drops what was not sent."""


class Wire:
    """`target` may be asked at each connection. `resets`: what is cut receives an error, not the
    end of a stream. Thread-safe enough for one that steers it."""

    def __init__(self, target: str | Callable[[], str], *, resets: bool = False) -> None:
        self.lead_to(target)
        self._resets = resets
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open = threading.Event()
        self._open.set()
        self._withheld = threading.Event()
        self._ends: list[socket.socket] = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, target: str | Callable[[], str]) -> None:
        """New connections go there."""
        self._target = target if callable(target) else lambda: target

    def cut(self) -> None:
        """Close every connection; new ones are taken."""
        ends, self._ends = self._ends, []
        self._withheld.clear()
        for end in ends:
            self._shut(end)

    def hold(self) -> None:
        """Nothing comes through any more, without an error."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def withhold_answers(self) -> None:
        """What the target sends is thrown away, until the next `cut`."""
        self._withheld.set()

    def close(self) -> None:
        self._closed = True
        self._open.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._open.wait()
            try:
                if self._closed:
                    raise ConnectionRefusedError
                host, _, port = self._target().rpartition(":")
                far = socket.create_connection((host, int(port)))
            except OSError:
                self._shut(near)
                continue
            self._ends += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(
                    target=self._pump, args=(source, target, source is far), daemon=True
                ).start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._open.wait()
                if not (answers and self._withheld.is_set()):
                    target.sendall(data)
        self._shut(source)
        self._shut(target)

    def _shut(self, end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._resets:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.shutdown(socket.SHUT_RDWR)
        end.close()
