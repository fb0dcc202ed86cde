"""`stratamq consume`: the messages of topics, as they lie there or as they come."""

import io
import json
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from stratamq.cli.completing import group_names, topic_names
from stratamq.cli.dump_output import Output
from stratamq.cli.message_format import TOKENS_HELP, formatted, parse_format
from stratamq.cli.message_lines import MessageLines
from stratamq.cli.moments import PLACES, TIMES, parse_start
from stratamq.cli.options import HERE, BrokerTarget, OutputOption
from stratamq.cli.reading_notes import (
    check_group,
    matching,
    note,
    note_bounds,
    note_interruption,
    note_missing,
    require_queues,
)
from stratamq.client import EARLIEST, AtTime, Client, ReceivedMessage
from stratamq.client.message_rows import line_row, message_row, tag_names
from stratamq.errors import InvalidRequestError
from stratamq.formats.shown_bodies import BodyAs
from stratamq.formats.topic_pattern import TopicPattern
from stratamq.option_groups import option_groups

RETRY_TIMEOUT_S = 30.0
NEW_TOPICS_S = 5.0
SHARED_BATCH, SHARED_WAIT_S, PASS_WAIT_S = 32, 20.0, 1.0
"""A following reader looks so often for topics that its pattern matches."""
NOW_END = "now-end"
RAW = "%s\\n"


def register(app: typer.Typer) -> None:
    app.command("consume")(consume)


@option_groups
def consume(
    topics: Annotated[
        list[str] | None, typer.Argument(help="One or more topics.", autocompletion=topic_names)
    ] = None,
    regex: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="Read all topics whose whole name matches this pattern."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Continue from this group's offsets, and commit what was printed.",
            autocompletion=group_names,
        ),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            metavar=PLACES,
            help="Start here; the default is earliest. Not allowed with a group that "
            "already has offsets. N is an offset in every queue, -N starts N messages "
            f"before every queue's end; TIME: {TIMES}.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar=f"N|-N|@TIME|{NOW_END}",
            help=f"Stop before this point; the default is {NOW_END}, or never with --follow.",
        ),
    ] = None,
    tags: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            "-t",
            help="Show only messages with these tags; repeatable, or 'a || b'. With --shared the "
            "others are finished for the group.",
        ),
    ] = None,
    queues: Annotated[
        list[int] | None,
        typer.Option("--queue", "-q", min=0, help="Read only these queues; repeatable."),
    ] = None,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Share the group's messages with its other workers, and acknowledge what was "
            "printed.",
        ),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Wait for new messages until Ctrl-C.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many messages.")
    ] = None,
    line_format: Annotated[
        str | None, typer.Option("--format", "-f", metavar="FORMAT", help=TOKENS_HELP)
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Print only bodies, a newline after each; for bodies without newlines use -f %s.",
        ),
    ] = False,
    body: Annotated[
        BodyAs,
        typer.Option(
            help="Choose how to show bodies (decompressed). auto: as text if possible; "
            "otherwise JSON output has base64."
        ),
    ] = BodyAs.AUTO,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the messages of topics, one line each, cut to the terminal's width.

    Messages of a queue are printed in order; queues and topics are read in turn, with no order
    between them. `produce --format json` accepts the output of `-o json`.

    Exit code 0 even if there are no messages (standard error has the reason); 1 if a topic or queue
    does not exist, or the broker is unreachable.
    """
    names = sorted(set(topics or ()))
    pattern = _pattern(names, regex)
    start = parse_start(offset if offset is not None else EARLIEST)
    end = _end(until, follow)
    _buffer_output()
    printer = _Printer(output, body, line_format, raw, len(names) != 1, follow)
    given = 0
    if shared:
        only_ready = not (regex or offset or until or queues)
        if group is None or len(names) != 1 or not only_ready:
            raise typer.BadParameter(
                "--shared needs --group and one topic, and knows no --regex, --offset, --until "
                "or --queue"
            )
        with place.client() as client:
            _consume_shared(client, names[0], group, printer, follow, count, tag_names(tags))
        return
    with place.client() as client:
        seen = names if pattern is None else matching(client, pattern, follow=follow)
        require_queues(client, seen, queues or ())
        if group is not None:
            check_group(client, group, seen, offset)
        if follow:
            note_missing(client, names)
            note_bounds(client, seen, queues or (), start, end)
        reader = client.consume(
            pattern or names,
            queues=queues or None,
            offset=start,
            until=end,
            tags=tag_names(tags),
            follow=follow,
            group=group,
            retry_timeout_s=RETRY_TIMEOUT_S,
            refresh_s=RETRY_TIMEOUT_S if pattern is None else NEW_TOPICS_S,
            on_interruption=note_interruption,
            acknowledged=True,
        )
        with reader:
            if group is not None:
                printer.flushed = reader.acknowledge
            try:
                for message in reader:
                    printer.message(message)
                    given += 1
                    if given == count:
                        break
            except KeyboardInterrupt:
                printer.flush()
                if not follow:
                    raise
            printer.flush()
        beyond = not follow and note_bounds(client, seen, queues or (), start, end)
    if not given and not follow and not beyond:
        what = f"the topics that match {regex}" if regex is not None else ", ".join(names)
        note(f"no message of {what} was read: {_why_none(group, queues, tags, until)}")


def _buffer_output() -> None:
    """Standard output gives its reader nothing before it is flushed.

    With PYTHONUNBUFFERED, and on a terminal, a line is there as soon as it is printed. Example:
    1. A message's line is written, and its reader sends SIGINT.
    2. The message is not noted as printed yet: the group commits without it.
    3. It comes again, although it was written.
    """
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper):
        return
    if isinstance(stream.buffer, io.RawIOBase):
        encoding, errors = stream.encoding, stream.errors
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(stream.detach()), encoding, errors)
    else:
        stream.reconfigure(line_buffering=False, write_through=False)


class _Printer:
    """How one reader prints: once it is made, its options are known to be good. Standard output has
    taken a message once it is flushed, and no sooner."""

    EVERY = 100
    """Flushes after so many messages, when it does not follow."""

    def __init__(
        self,
        output: Output,
        body: BodyAs,
        line_format: str | None,
        raw: bool,
        several_topics: bool,
        follow: bool,
    ) -> None:
        if (line_format is not None) + raw + (output is Output.JSON) > 1:
            raise typer.BadParameter("use only one of --format, --raw and --output json")
        self._every = 1 if follow else self.EVERY
        self._waiting: dict[tuple[str, str, int], ReceivedMessage] = {}
        """The last one of each queue that was printed and not flushed."""
        self._waits = 0
        self.flushed: Callable[[ReceivedMessage], None] = lambda _: None
        """Called for the last of each queue that standard output has taken."""
        self._flush: Callable[[], None] = sys.stdout.flush
        self._print: Callable[[ReceivedMessage], object]
        if raw or line_format is not None:
            pieces = parse_format(RAW if line_format is None else line_format)
            write = sys.stdout.buffer.write
            self._print = lambda message: write(formatted(pieces, message))
        elif output is Output.JSON:
            self._print = lambda message: print(json.dumps(message_row(message, body, exact=True)))
        else:
            lines = MessageLines(several_topics=several_topics, at_once=follow)
            self._flush = lines.flush
            self._print = lambda message: lines.row(line_row(message, body))

    def message(self, message: ReceivedMessage) -> None:
        self._print(message)
        self._waiting[message.broker, message.topic, message.queue_id] = message
        self._waits += 1
        if self._waits >= self._every:
            self.flush()

    def flush(self) -> None:
        self._flush()
        for message in self._waiting.values():
            self.flushed(message)
        self._waiting.clear()
        self._waits = 0


def _pattern(names: list[str], regex: str | None) -> TopicPattern | None:
    if bool(names) == (regex is not None):
        raise typer.BadParameter("name topics, or a --regex that their names match")
    if regex is None:
        return None
    try:
        return TopicPattern(regex)
    except InvalidRequestError as error:
        raise typer.BadParameter(f"--regex: {error}") from error


def _end(until: str | None, follow: bool) -> int | AtTime | None:
    if until is not None and follow:
        raise typer.BadParameter("--follow has no end: omit --follow or --until")
    if until is None or until == NOW_END:
        return None
    try:
        end = parse_start(until, option="--until")
    except InvalidRequestError as error:
        if until.startswith("@"):
            raise
        end = str(error)
    if isinstance(end, str):
        raise InvalidRequestError(f"--until {until}: a number, -N, @TIME or {NOW_END}")
    return end


def _why_none(
    group: str | None, queues: list[int] | None, tags: list[str] | None, until: str | None
) -> str:
    reasons = [
        f"the group {group} is at the end" if group is not None else "",
        "the named queues are empty" if queues else "",
        f"none has the tag {' || '.join(tags)}" if tags else "",
        f"none is before {until}" if until is not None else "",
    ]
    return ", or ".join(filter(None, reasons)) or "it has none at or behind the offset"


def _consume_shared(
    client: Client,
    topic: str,
    group: str,
    printer: _Printer,
    follow: bool,
    count: int | None,
    tags: list[str],
) -> None:
    """Print what is handed out, and acknowledge what standard output has taken. Ends when nothing
    is ready, unless it follows."""
    given = 0
    # Messages with other tags may lie before those that are wanted.
    wait_s = SHARED_WAIT_S if follow else PASS_WAIT_S if tags else 0
    with client.subscribe(topic, group, batch=SHARED_BATCH, tags=tags) as reader:
        try:
            while count is None or given < count:
                most = SHARED_BATCH if count is None else min(SHARED_BATCH, count - given)
                messages = reader.receive(most, wait_s)
                if not messages and not follow:
                    break
                for message in messages:
                    printer.message(message)
                printer.flush()
                reader.ack(messages)
                given += len(messages)
        except KeyboardInterrupt:
            if not follow:
                raise
    if not given and not follow:
        note(f"no message of {topic} is ready for group {group}")
