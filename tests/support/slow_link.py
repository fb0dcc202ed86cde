"""A slow connection: a relay before a service, whose answers come at a given rate."""

import contextlib
import socket
import threading
from collections.abc import Iterator

_PIECE_BYTES = 16_384


@contextlib.contextmanager
def slow_link(target: str, bytes_per_second: float) -> Iterator[str]:
    """The address at which `target` (host:port) answers slowly."""
    host, _, port = target.rpartition(":")
    listening = socket.create_server(("127.0.0.1", 0))
    sockets, ended = [listening], threading.Event()

    def accept() -> None:
        with contextlib.suppress(OSError):  # closed: the test is over
            while True:
                near, _ = listening.accept()
                far = socket.create_connection((host, int(port)))
                sockets.extend((near, far))
                for source, sink, pause_s in ((near, far, 0.0), (far, near, 1 / bytes_per_second)):
                    arguments = (source, sink, pause_s, ended)
                    threading.Thread(target=_copy, args=arguments, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        ended.set()
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _copy(
    source: socket.socket, sink: socket.socket, pause_s: float, ended: threading.Event
) -> None:
    with contextlib.suppress(OSError):  # one end is gone
        while data := source.recv(_PIECE_BYTES):
            ended.wait(len(data) * pause_s)
            sink.sendall(data)
