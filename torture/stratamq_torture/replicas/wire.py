"""A TCP proxy to one address: its own address stays when the broker's changes.

wire = Wire(NOWHERE)
wire.lead_to("127.0.0.1:41231")
wire.cut()
wire.close()
"""

import contextlib
import socket
import threading

NOWHERE = "127.0.0.1:9"
"""The discard port: no process listens."""


class Wire:
    """It can be led elsewhere, cut, and held so that nothing comes through. Thread-safe enough for
    one that steers it."""

    def __init__(self, target: str) -> None:
        self.lead_to(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open = threading.Event()
        self._open.set()
        self._ends: list[socket.socket] = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, target: str) -> None:
        """New connections go there."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))

    def cut(self) -> None:
        """Close every connection; new ones are taken."""
        ends, self._ends = self._ends, []
        for end in ends:
            _shut(end)

    def hold(self) -> None:
        """Nothing comes through any more, without an error."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._closed = True
        self._open.set()
        _shut(self._listener)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._open.wait()
            if self._closed:
                near.close()
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            self._ends += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._open.wait()
                target.sendall(data)
        _shut(source)
        _shut(target)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
