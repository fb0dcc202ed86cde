"""A way to a service that is cut at will: what goes through it arrives in order, or not at all."""

import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

_PIECE_BYTES = 64 << 10
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: a close sends RST, and drops what was not sent."""


class CuttingProxy:
    """Listens on `address`, and connects to what `target` gives at that moment; None: nothing is
    there, and who connects is refused."""

    def __init__(self, target: Callable[[], tuple[str, int] | None]) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[tuple[socket.socket, socket.socket]] = set()
        self._withheld = threading.Event()
        self._ended = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    @property
    def address(self) -> str:
        host, port = self._listening.getsockname()
        return f"{host}:{port}"

    def withhold_answers(self) -> None:
        """What the service sends is thrown away, until the next `cut`."""
        self._withheld.set()

    def cut(self) -> int:
        """Reset every connection, at both ends; how many."""
        with self._lock:
            pairs, self._open = list(self._open), set()
            self._withheld.clear()
        for pair in pairs:
            for end in pair:
                _reset(end)
        return len(pairs)

    def __enter__(self) -> "CuttingProxy":
        self._accepting.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended = True
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join()
        self.cut()

    def _accept(self) -> None:
        while not self._ended:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        target = self._target()
        try:
            if target is None:
                raise ConnectionRefusedError
            service = socket.create_connection(target, 5.0)
        except OSError:
            _reset(client)
            return
        service.settimeout(None)
        pair = (client, service)
        with self._lock:
            self._open.add(pair)
        threading.Thread(target=self._pass, args=(pair, client, service), daemon=True).start()
        threading.Thread(target=self._pass, args=(pair, service, client), daemon=True).start()

    def _pass(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket
    ) -> None:
        answers = source is pair[1]
        try:
            while data := source.recv(_PIECE_BYTES):
                if not (answers and self._withheld.is_set()):
                    sink.sendall(data)
        except OSError:
            pass  # one end was reset: so is the other
        with self._lock:
            self._open.discard(pair)
        for end in pair:
            _reset(end)


def _reset(end: socket.socket) -> None:
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is gone already
    finally:
        end.close()
