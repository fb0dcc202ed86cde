"""Whether this user may attach filters to sockets: most kernels let everybody, some only root."""

import functools
import socket

import pytest

from stratamq.service.connection_filter import keep_out


@functools.cache
def _refusal() -> str:
    """ "": they may be attached."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        try:
            keep_out(listener, {"192.0.2.1": 8})
        except OSError as error:
            return f"the kernel refuses socket filters to this user: {error.strerror}"
    return ""


needs_filters = pytest.mark.skipif(bool(_refusal()), reason=_refusal())
