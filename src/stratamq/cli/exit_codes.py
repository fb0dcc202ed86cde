"""What a command ends with.

0 done, 1 an error (one line on standard error), 2 wrong usage or settings (a line for each fault),
3 a store that is refused or in use, 4 (`up`) a port that was taken while a service started for the
first time, 130 Ctrl-C, 141 when the reader of standard output went away.
"""

from stratamq.errors import (
    ConfigurationError,
    CorruptionError,
    NotPermittedError,
    StoreRefusedError,
    StrataError,
    UnauthenticatedError,
)
from stratamq.service.server import EXIT_CONFIGURATION, EXIT_STORE_REFUSED

LOGGED = (CorruptionError, NotPermittedError, UnauthenticatedError)
"""Errors for which a service writes a line; a bug of its own says the id itself."""

EXIT_ERROR = 1
EXIT_USAGE = EXIT_CONFIGURATION
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def code_of(error: StrataError | OSError) -> int:
    if isinstance(error, ConfigurationError):
        return EXIT_USAGE
    return EXIT_STORE_REFUSED if isinstance(error, StoreRefusedError) else EXIT_ERROR


def lines_of(error: StrataError | OSError) -> list[str]:
    """A line for each fault."""
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return [_line(f"{where}{error.strerror or error}")]
    faults = error.faults if isinstance(error, ConfigurationError) else [str(error)]
    if isinstance(error, LOGGED) and error.request_id:
        faults = [f"{error} (stratamq logs --request {error.request_id})"]
    return [_line(fault) for fault in faults]


def _line(fault: str) -> str:
    return "error: " + " ".join(fault.split())
