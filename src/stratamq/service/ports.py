"""Why a service cannot listen on a port."""

import errno
import socket

from stratamq.errors import ConfigurationError

TAKEN = "taken"
_PASSIVE = socket.AI_PASSIVE
_SENTENCES = {
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "not permitted to this user (ports below 1024 need a privilege)",
}


class PortTakenError(ConfigurationError):
    """Something else has the port now: a listener, or a connection that got it by chance. A service
    that has run waits until it is free again."""


def cannot_listen(fault: str, error: OSError) -> ConfigurationError:
    """What to raise when a bind has failed."""
    taken = error.errno == errno.EADDRINUSE
    return PortTakenError([fault]) if taken else ConfigurationError([fault])


def listening_problem(host: str, port: int) -> str | None:
    """Why nothing can listen there now; None: it can."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=_PASSIVE)
    except OSError:
        return "the host is not known"
    problem: str | None = None
    free = 0
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as trial:
            # As the servers do: connections that have ended do not keep the port.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(address)
                free += 1
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return TAKEN
                problem = _SENTENCES.get(error.errno or 0, error.strerror or str(error))
    return None if free else problem
