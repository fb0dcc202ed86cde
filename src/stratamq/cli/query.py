"""`stratamq query`: messages by key, by id, by offset, by time."""

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import BodyAs
from stratamq.cli.message_lines import MessageLines
from stratamq.cli.message_rows import message_row, tag_names
from stratamq.cli.moments import TIMES, parse_moment
from stratamq.cli.options import (
    DEFAULT,
    AddressOption,
    BrokerOption,
    DataOption,
    OutputOption,
    open_client,
)
from stratamq.client import ReceivedMessage
from stratamq.errors import NotFoundError

query_app = typer.Typer(help="Find messages. Exit code 1 when there is none.", no_args_is_help=True)

FromOption = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help=f"stored then or later: {TIMES}")
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="stored then or earlier")
]
CountOption = Annotated[int, typer.Option("--count", "-n", min=1, help="at most so many")]
BodyOption = Annotated[BodyAs, typer.Option("--body", help="how to show bodies (decompressed)")]
DetailOption = Annotated[bool, typer.Option("--detail", help="every field, one below the other")]


def register(app: typer.Typer) -> None:
    app.add_typer(query_app, name="query")


@query_app.command("key")
def query_key(
    topic: str,
    key: Annotated[str, typer.Argument(help="a word of a message's keys, or its unique key")],
    begin: FromOption = None,
    end: ToOption = None,
    count: CountOption = 32,
    oldest_first: Annotated[bool, typer.Option(help="instead of newest first")] = False,
    unique: Annotated[bool, typer.Option(help="unique keys only")] = False,
    body: BodyOption = BodyAs.AUTO,
    detail: DetailOption = False,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    broker: BrokerOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Messages of a topic with a key."""
    with open_client(data, address, broker) as client:
        if unique:
            found = client.query_unique_key(topic, key, max_messages=count)
        else:
            found = client.query_key(
                topic,
                key,
                max_messages=count,
                begin_ms=0 if begin is None else parse_moment(begin),
                end_ms=0 if end is None and begin is None else _end(end),
                oldest_first=oldest_first,
            )
        if not found.messages and not client.queues(topic) and not client.topics(topic):
            raise NotFoundError(f"there is no topic {topic}")
    if found.missing:
        print(f"messages of the tier may be missing: {found.missing}", file=sys.stderr)
    _show(found.messages, f"no message of {topic} has the key {key}", output, body, detail)
    if found.truncated:
        _mention_more(output, count)


@query_app.command("msgid")
def query_msgid(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="32 or 56 hex digits")],
    body: BodyOption = BodyAs.AUTO,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    broker: BrokerOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """The message with an offset message id."""
    with open_client(data, address, broker) as client:
        message = client.message_by_id(message_id)
    _show([message], "", output, body, True)


@query_app.command("offset")
def query_offset(
    physical_offset: Annotated[
        int, typer.Argument(metavar="N", min=0, help="physical offset, in bytes of the log")
    ],
    body: BodyOption = BodyAs.AUTO,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    broker: BrokerOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """The message that begins at an offset of the log."""
    with open_client(data, address, broker) as client:
        message = client.message_at(physical_offset)
    _show([message], "", output, body, True)


@query_app.command("time")
def query_time(
    topic: str,
    begin: FromOption = None,
    end: ToOption = None,
    count: CountOption = 32,
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", "-t", help="only these tags; may be repeated, or 'a || b'"),
    ] = None,
    body: BodyOption = BodyAs.AUTO,
    detail: DetailOption = False,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    broker: BrokerOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Messages of a topic that were stored within a time, queue by queue."""
    begin_ms = 0 if begin is None else parse_moment(begin)
    with (
        open_client(data, address, broker) as client,
        client.between(topic, begin_ms, _end(end), tags=tag_names(tags)) as reader,
    ):
        messages = list(islice(reader, count + 1))
    what = f"{topic} with the tag {' || '.join(tags)}" if tags else topic
    _show(messages[:count], f"nothing of {what} was stored then", output, body, detail)
    if len(messages) > count:
        _mention_more(output, count)


def _end(text: str | None) -> int:
    """Without one: the last millisecond that a frame can carry, less one for the bound behind."""
    return 2**63 - 2 if text is None else parse_moment(text)


def _mention_more(output: Output, count: int) -> None:
    Printer(output, ()).note(
        {"kind": "truncated", "count": count}, f"there are more than {count}: see --count", False
    )


def _show(
    messages: Sequence[ReceivedMessage], nothing: str, output: Output, body: BodyAs, detail: bool
) -> None:
    cards = Printer(output, (), cards=True)
    lines = MessageLines(several_topics=False, at_once=False)
    printer = cards if detail or output is Output.JSON else lines
    for message in messages:
        printer.row(message_row(message, body, exact=output is Output.JSON))
    printer.flush()
    if not messages:
        raise NotFoundError(nothing)
