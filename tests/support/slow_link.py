"""A slow connection: a relay before a service, whose answers come at a given rate."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

_PIECE_BYTES = 16_384


@contextlib.contextmanager
def slow_link(target: str, bytes_per_second: float) -> Iterator[str]:
    """The address at which `target` (host:port) answers slowly."""
    host, _, port = target.rpartition(":")
    listening = socket.create_server(("127.0.0.1", 0))
    sockets = [listening]

    def accept() -> None:
        with contextlib.suppress(OSError):  # closed: the test is over
            while True:
                near, _ = listening.accept()
                far = socket.create_connection((host, int(port)))
                sockets.extend((near, far))
                for source, sink, pause_s in ((near, far, 0.0), (far, near, 1 / bytes_per_second)):
                    arguments = (source, sink, pause_s)
                    threading.Thread(target=_copy, args=arguments, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _copy(source: socket.socket, sink: socket.socket, pause_s: float) -> None:
    with contextlib.suppress(OSError):  # one end is gone
        while data := source.recv(_PIECE_BYTES):
            time.sleep(len(data) * pause_s)
            sink.sendall(data)
