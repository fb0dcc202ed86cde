"""`stratamq logs`: what the services of one broker have written, in the order of its time."""

import heapq
import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli.dump_output import printable
from stratamq.cli.moments import TIMES, parse_moment
from stratamq.cli.options import DEFAULT, LocalDataOption
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.store_paths import LOGS_DIRECTORY
from stratamq.service.logging import REQUEST_ID

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
UP = "up"
LOOK_S = 0.2
READ_AT_ONCE = 1 << 16
LEAST_DIGITS = 8
_ID = re.compile(rf"[0-9a-f]{{{LEAST_DIGITS},32}}")

_EVENT = re.compile(r"(?P<time>\d{4}-\d\d-\d\dT[\d:.]+Z) (?P<level>[A-Z]+) +(?P<service>\S+) ")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A line of a service, and the lines behind it that have no time of their own (a traceback)."""

    time: str
    """The time that the service wrote, UTC; "": before the first line with a time."""
    level: str
    text: str


def register(app: typer.Typer) -> None:
    app.command("logs")(logs)


def logs(
    services: Annotated[
        list[str] | None, typer.Argument(help="Show only these services.", metavar="[SERVICE]...")
    ] = None,
    data: LocalDataOption = DEFAULT,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", min=0, help="Show this many of the newest events; 0 shows all."
        ),
    ] = 200,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help=f"Show only events since this time: {TIMES}."),
    ] = None,
    level: Annotated[
        str, typer.Option(help=f"Show only events of at least this level: {', '.join(LEVELS)}.")
    ] = "DEBUG",
    match: Annotated[
        str | None, typer.Option("--match", "-m", help="Show only events that contain this text.")
    ] = None,
    request: Annotated[
        str | None,
        typer.Option(
            "--request", "-r", metavar="ID", help="Show only events of this request or trace."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until Ctrl-C.")
    ] = False,
) -> None:
    """Show the log lines of all services of a broker that `stratamq up` started, by time.

    Services in containers write to standard error: `docker compose logs`, `kubectl logs`.
    """
    directory = data / LOGS_DIRECTORY
    if not directory.is_dir():
        raise NotFoundError(f"{directory} is not there: name a broker's directory with --data")
    if level.upper() not in LEVELS:
        raise InvalidRequestError(f"--level {level}: one of {', '.join(LEVELS)}")
    of_request = _of_request(request)
    found = log_files(directory)
    found.pop(UP, None)  # what the terminal showed: services' lines among others
    unknown = sorted(set(services or ()) - found.keys())
    if unknown:
        known = ", ".join(sorted(found)) or "none"
        raise NotFoundError(f"no logs of {', '.join(unknown)} in {directory} (there are: {known})")
    chosen = {name: files for name, files in found.items() if not services or name in services}
    lowest = LEVELS.index(level.upper())
    first = _utc(since)

    def wanted(event: LogEntry) -> bool:
        at_level = event.level not in LEVELS or LEVELS.index(event.level) >= lowest
        matches = match is None or match in event.text
        return at_level and event.time >= first and matches and of_request(event.text)

    ends = {files[-1]: files[-1].stat().st_size for files in chosen.values()}
    for event in reversed(_newest(chosen.values(), ends, first, wanted, lines)):
        _show(event)
    if follow:
        _follow(ends, wanted)


def _show(event: LogEntry) -> None:
    """What peers have sent may stand in it: nothing that a terminal obeys."""
    print("\n".join(printable(line) for line in event.text.split("\n")))


def _of_request(request: str | None) -> Callable[[str], object]:
    """Whether a text is an event of the request."""
    if request is None:
        return lambda text: True
    digits = request.lower()
    if not _ID.fullmatch(digits):
        raise InvalidRequestError(
            f"--request {request}: an ID has 32 hexadecimal digits; give at least the first "
            f"{LEAST_DIGITS}"
        )
    return re.compile(rf'\b{REQUEST_ID}(=|": ?"){digits}').search


def _newest(
    services: Iterable[Sequence[Path]],
    ends: Mapping[Path, int],
    first: str,
    wanted: Callable[[LogEntry], bool],
    count: int,
) -> list[LogEntry]:
    """So many (0: all), the newest first, none before `first`."""
    found: list[LogEntry] = []
    each = [events_backwards(files, ends.get) for files in services]
    for event in heapq.merge(*each, key=lambda event: event.time, reverse=True):
        if event.time < first or (count and len(found) == count):
            break
        if wanted(event):
            found.append(event)
    return found


def log_files(directory: Path) -> dict[str, list[Path]]:
    """Return each service's log files, oldest first."""
    found: dict[str, list[Path]] = {}
    for path in sorted(directory.glob("*.log")):
        older = path.with_suffix(".log.1")
        found[path.stem] = [older, path] if older.exists() else [path]
    return found


def events_backwards(
    files: Sequence[Path], end_of: Callable[[Path], int | None] = lambda path: None
) -> Iterator[LogEntry]:
    """The newest first. Of a file no byte behind its `end_of` is read."""
    behind: list[str] = []
    for path in reversed(files):
        for line in _lines_backwards(path, end_of(path)):
            head = _head(line)
            if head is None:
                behind.append(line)
                continue
            yield LogEntry(*head, "\n".join([line, *reversed(behind)]))
            behind.clear()
    if behind:
        yield LogEntry("", "", "\n".join(reversed(behind)))


def _head(line: str) -> tuple[str, str] | None:
    """(time, level) of a line that begins an event."""
    text = _EVENT.match(line)
    if text is not None:
        return text["time"], text["level"]
    if line.startswith("{"):
        try:
            record = json.loads(line)
        except ValueError:
            return None
        if isinstance(record, dict) and "time" in record:
            return str(record["time"]), str(record.get("level", ""))
    return None


def _lines_backwards(path: Path, end: int | None) -> Iterator[str]:
    with path.open("rb") as file:
        at = file.seek(0, 2) if end is None else end
        rest = b""
        while at > 0:
            size = min(READ_AT_ONCE, at)
            at -= size
            file.seek(at)
            first, *lines = (file.read(size) + rest).split(b"\n")
            for line in reversed(lines):
                if line:
                    yield line.decode("utf-8", "replace")
            rest = first
        if rest:
            yield rest.decode("utf-8", "replace")


def _follow(ends: dict[Path, int], wanted: Callable[[LogEntry], bool]) -> None:
    """What is added behind `ends`."""
    rests = dict.fromkeys(ends, b"")
    shown = dict.fromkeys(ends, False)
    """Whether lines without a time belong to an event that was shown."""
    pause = threading.Event()
    while True:
        events: list[LogEntry] = []
        for path in ends:
            for event in _events(_added(path, ends, rests)):
                if event.time:
                    shown[path] = wanted(event)
                if shown[path]:
                    events.append(event)
        for event in sorted(events, key=lambda event: event.time):
            _show(event)
        sys.stdout.flush()
        pause.wait(LOOK_S)


def _events(lines: Iterable[str]) -> Iterator[LogEntry]:
    """The oldest first. What stands before the first line with a time has none."""
    begun: list[str] = []
    head = "", ""
    for line in lines:
        found = _head(line)
        if found is not None:
            if begun:
                yield LogEntry(*head, "\n".join(begun))
            begun, head = [], found
        begun.append(line)
    if begun:
        yield LogEntry(*head, "\n".join(begun))


def _added(path: Path, ends: dict[Path, int], rests: dict[Path, bytes]) -> Iterable[str]:
    size = path.stat().st_size if path.exists() else 0
    if size < ends[path]:  # rotated: the file starts again at byte 0
        ends[path], rests[path] = 0, b""
    if size == ends[path]:
        return []
    with path.open("rb") as file:
        file.seek(ends[path])
        data = rests[path] + file.read(size - ends[path])
    ends[path] = size
    *lines, rests[path] = data.split(b"\n")
    return [line.decode("utf-8", "replace") for line in lines if line]


def _utc(since: str | None) -> str:
    """Format the time like the services' log lines; "" without a time."""
    if since is None:
        return ""
    moment = datetime.fromtimestamp(parse_moment(since) / 1_000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
