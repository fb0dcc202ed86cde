"""A TCP proxy that keeps every byte that went through it: what a packet capture would see."""

import contextlib
import socket
import threading


class Recorder:
    """`data()` is what has gone through, both ways. Closed as a context."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._data = bytearray()
        self._sent = bytearray()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def data(self) -> bytes:
        with self._lock:
            return bytes(self._data)

    def sent(self) -> bytes:
        """Of them, those of clients."""
        with self._lock:
            return bytes(self._sent)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._ends += [near, far]
                for ends in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                with self._lock:
                    self._data += piece
                    if is_client:
                        self._sent += piece
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
