"""`stratamq produce`: lines, or JSON objects, become messages of a topic."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from stratamq.cli.completing import topic_names
from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.message_documents import DOCUMENT_HELP, message_of
from stratamq.cli.options import DEFAULT, AddressOption, DataOption, OutputOption, open_client
from stratamq.client import Message, SendResult
from stratamq.errors import InvalidRequestError, StrataError

SHOWN_FAILURES = 10
_PROGRESS_EVERY = 256


class Format(StrEnum):
    LINES = "lines"
    JSON = "json"


def register(app: typer.Typer) -> None:
    app.command("produce")(produce)


def produce(
    topic: Annotated[
        str,
        typer.Argument(
            help="where the messages go; made if the broker may", autocompletion=topic_names
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", exists=True, dir_okay=False, help="instead of standard input"),
    ] = None,
    input_format: Annotated[
        Format,
        typer.Option(
            "--format",
            help=f"lines: each line is a body; json: each line is an object with {DOCUMENT_HELP}",
        ),
    ] = Format.LINES,
    keys: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="for every message; may be repeated")
    ] = None,
    tag: Annotated[str, typer.Option("--tag", "-t", help="for every message without one")] = "",
    queue: Annotated[
        int | None,
        typer.Option("--queue", "-q", min=0, help="for every message without one; else in turn"),
    ] = None,
    retry: Annotated[
        int,
        typer.Option(
            min=0, help="send again so often when the log goes away; messages may then be twice"
        ),
    ] = 0,
    require_replicas: Annotated[
        bool,
        typer.Option(
            help="store nothing while fewer slaves are connected than a SYNC_MASTER requires"
        ),
    ] = False,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Store messages. Answers when all of them are as safe as the broker promises.

    Exit code 0: all are stored. 1: some are not, or perhaps not; standard error has the reason.
    """
    defaults = Message(topic, b"", tag=tag, keys=tuple(keys or ()), queue_id=queue)
    tally = _Tally()
    started = time.monotonic()
    with open_client(data, address) as client, _open(file) as source:
        messages = read_messages(source, input_format, defaults)
        size = file.stat().st_size if file is not None else None
        fault: StrataError | None = None
        producing = client.producer(
            on_result=tally.take, retry=retry, require_replicas=require_replicas
        )
        with producing as producer, _bar(size) as advance:
            try:
                for count, (message, taken) in enumerate(messages, 1):
                    producer.send_message(message)
                    tally.sent = count
                    advance(count, taken)
            except StrataError as error:  # what was sent before is stored, and counted
                fault = error
    tally.print(Printer(output, ("topic", *_Tally.COLUMNS)), topic, time.monotonic() - started)
    if fault is not None:
        raise fault
    if tally.stored != tally.sent:
        raise typer.Exit(1)


def read_messages(
    source: Iterable[bytes], input_format: Format, defaults: Message
) -> Iterator[tuple[Message, int]]:
    """Each message with the number of input bytes read so far. InvalidRequestError names the
    line."""
    taken = 0
    for number, line in enumerate(source, 1):
        taken += len(line)
        body = line.removesuffix(b"\n").removesuffix(b"\r")
        if input_format is Format.LINES:
            yield _with(defaults, body=body), taken
        elif body.strip():
            try:
                yield message_of(json.loads(body), defaults), taken
            except (ValueError, RecursionError, InvalidRequestError) as error:
                raise InvalidRequestError(f"line {number}: {error}") from error


def _with(defaults: Message, body: bytes) -> Message:
    return Message(
        defaults.topic,
        body,
        tag=defaults.tag,
        keys=defaults.keys,
        queue_id=defaults.queue_id,
    )


class _Tally:
    """Results as they come, from the producer's thread."""

    COLUMNS = ("sent", "stored", "unconfirmed", "failed", "bytes", "seconds", "perSecond")

    def __init__(self) -> None:
        self.sent = 0
        self.stored = 0
        self.unconfirmed = 0
        self.bytes = 0
        self.failures: dict[str, int] = {}

    def take(self, result: SendResult) -> None:
        if result.error is not None:
            self._failed(result.error)
            return
        self.stored += 1
        self.bytes += result.size
        if result.status.name != "PUT_OK":
            self.unconfirmed += 1

    def _failed(self, error: StrataError) -> None:
        sentence = str(error)
        self.failures[sentence] = self.failures.get(sentence, 0) + 1

    def print(self, printer: Printer, topic: str, seconds: float) -> None:
        for sentence, count in list(self.failures.items())[:SHOWN_FAILURES]:
            print(f"error: {count} not stored: {' '.join(sentence.split())}", file=sys.stderr)
        printer.row(
            {
                "topic": topic,
                "sent": self.sent,
                "stored": self.stored,
                "unconfirmed": self.unconfirmed,
                "failed": sum(self.failures.values()),
                "bytes": self.bytes,
                "seconds": round(seconds, 3),
                "perSecond": round(self.stored / seconds) if seconds else 0,
            }
        )
        printer.flush()


@contextmanager
def _open(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdin.buffer
    else:
        with file.open("rb") as opened:
            yield opened


@contextmanager
def _bar(size: int | None) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda count, taken: None
        return
    columns = [SpinnerColumn(), TextColumn("{task.fields[count]:,} messages"), DownloadColumn()]
    if size is not None:
        columns.insert(2, BarColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("produce", total=size, count=0)

        def advance(count: int, taken: int) -> None:
            if count % _PROGRESS_EVERY == 0:
                progress.update(task, completed=taken, count=count)

        yield advance
