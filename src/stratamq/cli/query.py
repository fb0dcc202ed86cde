"""`stratamq query`: messages by key, by id, by offset, by time."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.message_lines import MessageLines
from stratamq.cli.moments import TIMES, parse_moment
from stratamq.cli.options import (
    HERE,
    BodyOption,
    BrokerTarget,
    DetailOption,
    LogOffsetArgument,
    MessageIdArgument,
    OutputOption,
)
from stratamq.client import ReceivedMessage
from stratamq.client.message_rows import message_row, tag_names
from stratamq.errors import NotFoundError
from stratamq.formats.shown_bodies import BodyAs
from stratamq.option_groups import option_groups

query_app = typer.Typer(
    help="Find messages. Exits with code 1 if there are none.", no_args_is_help=True
)

FromOption = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help=f"Find only messages stored at or after this time: {TIMES}."
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="Find only messages stored at or before this time."),
]
CountOption = Annotated[
    int, typer.Option("--count", "-n", min=1, help="Show at most this many messages.")
]


@dataclass(frozen=True, slots=True)
class Period:
    """Which messages of a topic are found, at most."""

    begin: FromOption = None
    end: ToOption = None
    count: CountOption = 32


@dataclass(frozen=True, slots=True)
class ShownMessages:
    """How messages are shown."""

    body: BodyOption = BodyAs.AUTO
    detail: DetailOption = False


ANY_TIME, BRIEFLY = Period(), ShownMessages()


def register(app: typer.Typer) -> None:
    app.add_typer(query_app, name="query")


@query_app.command("key")
@option_groups
def query_key(
    topic: str,
    key: Annotated[str, typer.Argument(help="One of a message's keys, or its unique key.")],
    period: Period = ANY_TIME,
    oldest_first: Annotated[
        bool, typer.Option(help="Show the oldest messages first; the default is newest first.")
    ] = False,
    unique: Annotated[bool, typer.Option(help="Match unique keys only.")] = False,
    shown: ShownMessages = BRIEFLY,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find messages of a topic by key."""
    with place.client() as client:
        if unique:
            found = client.query_unique_key(topic, key, max_messages=period.count)
        else:
            found = client.query_key(
                topic,
                key,
                max_messages=period.count,
                begin_ms=_begin(period.begin),
                end_ms=0 if period.end is None and period.begin is None else _end(period.end),
                oldest_first=oldest_first,
            )
        if not found.messages and not client.queues(topic) and not client.topics(topic):
            raise NotFoundError(f"there is no topic {topic}")
    if found.missing:
        print(f"messages of the tier may be missing: {found.missing}", file=sys.stderr)
    _show(found.messages, f"no message of {topic} has the key {key}", output, shown)
    if found.truncated:
        _mention_more(output, period.count)


@query_app.command("msgid")
@option_groups
def query_msgid(
    message_id: MessageIdArgument,
    body: BodyOption = BodyAs.AUTO,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the message with an offset message ID."""
    with place.client() as client:
        message = client.message_by_id(message_id)
    _show([message], "", output, ShownMessages(body, detail=True))


@query_app.command("offset")
@option_groups
def query_offset(
    physical_offset: LogOffsetArgument,
    body: BodyOption = BodyAs.AUTO,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the message that begins at an offset of the log."""
    with place.client() as client:
        message = client.message_at(physical_offset)
    _show([message], "", output, ShownMessages(body, detail=True))


@query_app.command("time")
@option_groups
def query_time(
    topic: str,
    period: Period = ANY_TIME,
    tags: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", "-t", help="Show only messages with these tags; repeatable, or 'a || b'."
        ),
    ] = None,
    shown: ShownMessages = BRIEFLY,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find messages of a topic that were stored within a period, queue by queue."""
    begin_ms, end_ms, count = _begin(period.begin), _end(period.end), period.count
    with (
        place.client() as client,
        client.between(topic, begin_ms, end_ms, tags=tag_names(tags)) as reader,
    ):
        messages = list(islice(reader, count + 1))
    what = f"{topic} with the tag {' || '.join(tags)}" if tags else topic
    _show(messages[:count], f"nothing of {what} was stored in that period", output, shown)
    if len(messages) > count:
        _mention_more(output, count)


def _begin(text: str | None) -> int:
    return 0 if text is None else parse_moment(text)


def _end(text: str | None) -> int:
    """Without one: the last millisecond that a frame can carry, less one for the bound behind."""
    return 2**63 - 2 if text is None else parse_moment(text)


def _mention_more(output: Output, count: int) -> None:
    Printer(output, ()).note(
        {"kind": "truncated", "count": count}, f"there are more than {count}: see --count", False
    )


def _show(
    messages: Sequence[ReceivedMessage], nothing: str, output: Output, shown: ShownMessages
) -> None:
    cards = Printer(output, (), cards=True)
    lines = MessageLines(several_topics=False, at_once=False)
    printer = cards if shown.detail or output is Output.JSON else lines
    for message in messages:
        printer.row(message_row(message, shown.body, exact=output is Output.JSON))
    printer.flush()
    if not messages:
        raise NotFoundError(nothing)
