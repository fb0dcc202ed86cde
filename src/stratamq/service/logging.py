"""Structured logs on standard error: JSON lines for programs, one line per event for people.

An event is a short constant string with fields beside it, never a built sentence:
`logging.getLogger(__name__).info("segment rolled", extra={"start_offset": 1073741824})`.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from pythonjsonlogger.json import JsonFormatter

from stratamq.rpc.request_ids import current

REQUEST_ID = "request_id"
"""The field of every event of a request; also the id of its trace."""

# What every LogRecord carries; whatever else is on a record came in through `extra`.
_STANDARD = frozenset(
    vars(logging.LogRecord("", 0, "", 0, "", None, None)) | {"message": "", "asctime": ""}
)
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@+,%[]*")


def configure(
    service: str, json: bool = False, level: str = "INFO", stream: TextIO | None = None
) -> None:
    """Send the root logger's events to `stream` (standard error). Called once, in `__main__`."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_JsonFormatter(service) if json else _TextFormatter(service))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(True)
    for name in OF_PEERS:
        logging.getLogger(name).addFilter(_FewLines())


OF_PEERS = ("grpc._cython.cygrpc", "asyncio")
"""Loggers that write about what other machines send."""
LINES_A_SECOND = 5


class _FewLines(logging.Filter):
    """No peer fills the log: of a logger at most `LINES_A_SECOND` lines, and each without the
    traceback of a text that could not be decoded."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._lines = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError):
            record.exc_info = None
        second = int(record.created)
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= LINES_A_SECOND


class _JsonFormatter(JsonFormatter):
    """One JSON object per event: time, level, service, logger, event, then the fields."""

    def __init__(self, service: str) -> None:
        super().__init__("{levelname}{name}{message}", style="{", json_default=str)
        self._service = service

    def add_fields(self, log_data, record, message_dict) -> None:
        log_data["time"] = _timestamp(record)
        log_data["level"] = record.levelname
        log_data["service"] = self._service
        log_data["logger"] = record.name
        log_data["event"] = record.getMessage()
        log_data |= _fields(record)
        if record.exc_info:
            log_data["traceback"] = self.formatException(record.exc_info)


class _TextFormatter(logging.Formatter):
    """`2026-01-31T10:00:00.000Z INFO commitlog segment rolled start_offset=1073741824`."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        words = [_timestamp(record), f"{record.levelname:<7}", self._service]
        words.append(_one_line(record.getMessage()))
        words += [f"{name}={_quoted(value)}" for name, value in _fields(record).items()]
        line = " ".join(words)
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    request = current()
    if request is not None:
        fields[REQUEST_ID] = request.id
    return fields


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _one_line(text: str) -> str:
    """Text from outside must not be able to start a line that looks like another event."""
    return text if text.isprintable() else ascii(text)[1:-1]


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else ascii(text)
