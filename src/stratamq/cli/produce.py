"""`stratamq produce`: lines, JSON objects or a whole file become messages of a topic."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, BinaryIO

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
from stratamq.cli.dump_output import Output, Printer, say
from stratamq.cli.message_documents import DOCUMENT_HELP
from stratamq.cli.message_input import Format, MessageInput
from stratamq.cli.moments import TIMES, parse_moment, parse_span
from stratamq.cli.options import HERE, BrokerTarget, OutputOption
from stratamq.cli.produce_sending import Placing, Sending
from stratamq.cli.reading_notes import note_send_interruption
from stratamq.client import Client, Message
from stratamq.errors import NotFoundError
from stratamq.formats.javahash import queue_of_key
from stratamq.option_groups import option_groups

COLUMNS = ("topic", "sent", "stored", "unconfirmed", "failed", "bytes", "seconds", "perSecond")
_PROGRESS_EVERY = 256


def register(app: typer.Typer) -> None:
    app.command("produce")(produce)


@option_groups
def produce(
    topic: Annotated[
        str,
        typer.Argument(
            help="Topic to send to. Created if automatic topic creation is enabled.",
            autocompletion=topic_names,
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            exists=True,
            dir_okay=False,
            help="Read from this file instead of standard input.",
        ),
    ] = None,
    input_format: Annotated[
        Format,
        typer.Option(
            "--format",
            help="Choose the input format. lines: each line is a body; json: each line is "
            f"an object with {DOCUMENT_HELP}.",
        ),
    ] = Format.LINES,
    whole: Annotated[
        bool, typer.Option("--whole", help="Send the whole input as one message, byte for byte.")
    ] = False,
    from_line: Annotated[
        int, typer.Option(min=1, help="Start at this line; continues a run that ended early.")
    ] = 1,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", help="Add this key to every message; repeatable."),
    ] = None,
    tag: Annotated[
        str, typer.Option("--tag", "-t", help="Use this tag for messages without one.")
    ] = "",
    queue: Annotated[
        int | None,
        typer.Option(
            "--queue",
            "-q",
            min=0,
            help="Use this queue for messages without one; the default is round robin.",
        ),
    ] = None,
    key_hash: Annotated[
        bool | None,
        typer.Option(
            "--key-hash/--no-key-hash",
            help="Choose the queue by a message's first key, so that messages with the same"
            " key keep their order: |String.hashCode mod queues|, like RocketMQ's "
            "SelectMessageQueueByHash. Implied by --ordering-key.",
        ),
    ] = None,
    ordering_key: Annotated[
        str | None,
        typer.Option(help="Make this the first key of every message; it chooses the queue."),
    ] = None,
    delay_level: Annotated[
        int,
        typer.Option(
            min=0,
            help="Deliver the messages after RocketMQ's delay of this level: 1 is 1 s, 2 is 5 s, "
            "18 is 2 h.",
        ),
    ] = 0,
    delay: Annotated[
        str | None,
        typer.Option(
            help="Deliver the messages after this time, up to a year: 90s, 5m, 1h30m, 2d."
        ),
    ] = None,
    deliver_at: Annotated[
        str | None,
        typer.Option(help=f"Deliver the messages at this time, up to a year ahead: {TIMES}."),
    ] = None,
    retry: Annotated[
        bool,
        typer.Option(
            "--retry/--no-retry",
            help="Resend unanswered messages for two minutes; each is stored once. With "
            "--no-retry, each is sent once and may have been stored without an answer.",
        ),
    ] = True,
    require_replicas: Annotated[
        bool,
        typer.Option(
            help="Store nothing while fewer slaves are connected than a SYNC_MASTER requires."
        ),
    ] = False,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Store messages. Returns when all of them are as safe as the broker promises.

    Exit code 0: all are stored. 1: some are not stored, or possibly stored. 130: Ctrl-C. The
    command ends at the first line that is not stored; standard error has the reason, the line up to
    which all are stored, and what is stored beyond it.
    """
    if whole and (from_line > 1 or input_format is not Format.LINES):
        raise typer.BadParameter("--whole has no lines: omit --from-line and --format")
    by_hash = ordering_key is not None if key_hash is None else key_hash
    if by_hash and input_format is Format.LINES and not (keys or ordering_key):
        raise typer.BadParameter("--key-hash: lines have no keys: give --ordering-key or --key")
    if by_hash and queue is not None:
        raise typer.BadParameter("use either --queue or the hash of a key")
    all_keys = (*([] if ordering_key is None else [ordering_key]), *(keys or ()))
    when = _when(delay_level, delay, deliver_at)
    defaults = Message(topic, b"", tag=tag, keys=all_keys, queue_id=queue, **when)
    started = time.monotonic()
    with place.client() as client, _open(file) as source:
        given = MessageInput(source, input_format, defaults, from_line=from_line, whole=whole)
        sending = Sending(
            client.producer(
                retry=retry,
                require_replicas=require_replicas,
                on_interruption=note_send_interruption if retry else None,
            ),
            _chooser(client, topic, ordering_key, defaults) if by_hash else None,
        )
        size = file.stat().st_size if file is not None else None
        with _bar(size) as advance:
            sending.run(given, advance)
    say(*sending.report(from_line, has_lines=not whole))
    try:
        _show(sending, output, topic, time.monotonic() - started)
    except OSError:
        tally = sending.tally
        say(f"{tally.stored:,} of {tally.sent:,} messages are stored: standard output failed")
        raise
    if sending.code:
        raise typer.Exit(sending.code)


def _when(delay_level: int, delay: str | None, deliver_at: str | None) -> dict[str, Any]:
    """The field of a message that says when it is delivered."""
    if (delay_level > 0) + (delay is not None) + (deliver_at is not None) > 1:
        raise typer.BadParameter("use one of --delay, --deliver-at and --delay-level")
    if delay is not None:
        return {"delay": timedelta(milliseconds=parse_span(delay))}
    if deliver_at is not None:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=parse_moment(deliver_at))
        return {"deliver_at": moment}
    return {"delay_level": delay_level}


def _chooser(client: Client, topic: str, ordering_key: str | None, defaults: Message) -> Placing:
    """By its ordering key or its own first key: its queue, and among brokers of several names the
    key alone, which becomes its first key."""
    found = client.topics(topic)
    queues = sum(one.write_queue_count for one in found)
    if not queues:
        raise NotFoundError(
            f"there is no topic {topic}, and keys choose among its queues: make it with "
            f"`stratamq topics create {topic} --queues N`"
        )
    shared = len(defaults.keys)

    def place(message: Message) -> tuple[int | None, str | None]:
        keys = message.keys[shared:] or message.keys
        key = ordering_key if ordering_key is not None else keys[0] if keys else None
        if key is None:
            return message.queue_id, None
        return (None, key) if found[0].broker else (queue_of_key(key, queues), None)

    return place


def _show(sending: Sending, output: Output, topic: str, seconds: float) -> None:
    tally = sending.tally
    printer = Printer(output, COLUMNS)
    printer.row(
        {
            "topic": topic,
            "sent": tally.sent,
            "stored": tally.stored,
            "unconfirmed": tally.unconfirmed,
            "failed": tally.sent - tally.stored,
            "bytes": tally.bytes,
            "seconds": round(seconds, 3),
            "perSecond": round(tally.stored / seconds) if seconds else 0,
            "nextLine": sending.next_line,
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
