"""Whether this user may attach filters to sockets: most kernels let everybody, some only root."""

import socket

import pytest

from stratamq.service.connection_filter import keep_out


def _refusal() -> str:
    """ "": they may be attached."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        try:
            keep_out(listener, {"192.0.2.1": 8})
        except OSError as error:
            return f"the kernel refuses socket filters to this user: {error.strerror}"
    return ""


REFUSAL = _refusal()
needs_filters = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)
