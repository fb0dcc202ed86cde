"""The services' log lines for a person who watches: only what is out of the ordinary, and short."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

NOTABLE_LEVELS = frozenset({"WARNING", "ERROR", "CRITICAL"})
NOTABLE_EVENTS = frozenset({"recovery"})
LONGEST_LINE = 300
_BYTES_AT_ONCE = 1 << 20

_TEXT_LINE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+Z (?P<level>[A-Z]+) +(?P<service>\S+) (?P<event>.*)"
)
_ORDINARY_FIELDS = frozenset({"time", "level", "service", "logger", "event"})


def notable(line: str) -> tuple[str, str] | None:
    """(level, text) of a line that a person should see; None for the others."""
    text = _TEXT_LINE.fullmatch(line)
    if text is not None:
        level, event = text["level"], text["event"]
    elif line.startswith("{"):
        try:
            record = json.loads(line)
        except ValueError:
            return None
        fields = {k: v for k, v in record.items() if k not in _ORDINARY_FIELDS | {"traceback"}}
        details = "".join(f" {name}={value}" for name, value in fields.items())
        level, event = str(record.get("level")), f"{record.get('event')}{details}"
    else:
        return None
    if level in NOTABLE_LEVELS or any(event.startswith(f"{name} ") for name in NOTABLE_EVENTS):
        return level, event if len(event) <= LONGEST_LINE else f"{event[:LONGEST_LINE]} …"
    return None


class LogWatch:
    """What has been added to log files since they were last looked at."""

    def __init__(self, paths: Mapping[str, Path], report: Callable[[str, str, str], None]) -> None:
        """`report(room, level, text)`. Begins at the files' present ends."""
        self._paths = dict(paths)
        self._report = report
        self._positions = {room: _size(path) for room, path in self._paths.items()}
        self._rests = dict.fromkeys(self._paths, b"")

    def look(self) -> None:
        for room, path in self._paths.items():
            for line in self._new_lines(room, path):
                found = notable(line)
                if found is not None:
                    self._report(room, *found)

    def _new_lines(self, room: str, path: Path) -> Iterator[str]:
        size = _size(path)
        if size < self._positions[room]:  # a new file: the old one became too large
            self._positions[room], self._rests[room] = 0, b""
        if size == self._positions[room]:
            return
        with path.open("rb") as file:
            file.seek(self._positions[room])
            data = self._rests[room] + file.read(_BYTES_AT_ONCE)
            self._positions[room] = file.tell()
        *lines, self._rests[room] = data.split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
