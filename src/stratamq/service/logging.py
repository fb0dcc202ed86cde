"""Structured logs on standard error: JSON lines for programs, one line per event for people.

An event is a short constant string with fields beside it, never a built sentence:
`logging.getLogger(__name__).info("segment rolled", extra={"start_offset": 1073741824})`.
"""

import io
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from pythonjsonlogger.json import JsonFormatter

from stratamq.rpc.request_ids import current
from stratamq.service.hosting import SERVICE

REQUEST_ID = "request_id"
"""The field of every event of a request; also the id of its trace."""

# What every LogRecord carries; whatever else is on a record came in through `extra`.
_STANDARD = frozenset(
    vars(logging.LogRecord("", 0, "", 0, "", None, None)) | {"message": "", "asctime": ""}
)
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@+,%[]*")


LARGEST_LOG_BYTES = 32 << 20


def open_log(path: Path) -> BinaryIO:
    """A service's log file to append to; a large one is put aside as `.1` before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LARGEST_LOG_BYTES:
        os.replace(path, path.with_suffix(".log.1"))
    return path.open("ab")


def configure(
    service: str,
    json: bool = False,
    level: str = "INFO",
    stream: TextIO | None = None,
    directory: Path | None = None,
) -> None:
    """Send the service's events to `stream` (standard error). Called once by each service; in a
    process of several the second and further ones write to their files in `directory`."""
    root = logging.getLogger()
    beside = [one for one in root.handlers if isinstance(one, _Handler)] if SERVICE.get() else []
    if beside and directory is not None:
        stream = io.TextIOWrapper(open_log(directory / f"{service}.log"), errors="backslashreplace")
    handler = _Handler(sys.stderr if stream is None else stream, service, alone=not beside)
    handler.setFormatter(_JsonFormatter(service) if json else _TextFormatter(service))
    handler.setLevel(level)
    if beside:
        root.setLevel(min(root.level, handler.level))
    else:
        for old in root.handlers[:]:
            root.removeHandler(old)
        root.setLevel(level)
        logging.captureWarnings(True)
        for name in OF_PEERS:
            logging.getLogger(name).addFilter(_FewLines())
    root.addHandler(handler)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes a service's events; the first of a process those of no service, too."""

    def __init__(self, stream: TextIO, service: str, *, alone: bool) -> None:
        super().__init__(stream)
        self._services = {service, ""} if alone else {service}

    def filter(self, record: logging.LogRecord) -> Any:
        return SERVICE.get() in self._services and super().filter(record)


PEERS = "stratamq.peers"
"""The logger for what peers do wrong, as often as they like."""
DEFECTS = "stratamq.defects"
"""The logger for failures of this program that a peer's request causes, as often as it is sent.
Not `PEERS`: what peers do wrong must not hide them."""
OF_PEERS = ("grpc._cython.cygrpc", "asyncio", PEERS, DEFECTS)
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
