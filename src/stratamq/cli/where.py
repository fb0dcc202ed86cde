"""`stratamq where`: one message's whole life, from the segment to the acknowledgement."""

import sys
from typing import Annotated, Any

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import Row, fields_of
from stratamq.cli.options import (
    HERE,
    BrokerTarget,
    LogOffsetArgument,
    MessageIdArgument,
    OutputOption,
)
from stratamq.client import Client, ReceivedMessage, Whereabouts
from stratamq.client.message_rows import message_row
from stratamq.errors import NotFoundError
from stratamq.formats.file_names import offset_name
from stratamq.formats.frame_fields import frame_fields
from stratamq.formats.shown_bodies import BodyAs
from stratamq.option_groups import option_groups

where_app = typer.Typer(
    help="Show one message's whole life: its place in the log, its queue and the index, which "
    "members have it, who has read it, and when retention takes it at the latest.",
    no_args_is_help=True,
)
HexOption = Annotated[
    bool, typer.Option("--hex", help="Show the frame's bytes as well, with the fields marked.")
]
KEY_COLUMNS = ("key", "unique", "found", "file")
MEMBER_COLUMNS = ("member", "acknowledgedOffset", "has", "connected")
GROUP_COLUMNS = ("group", "stage", "offset", "before", "worker", "attempt", "untilTimestamp",
                 "deadLetter")  # fmt: skip


def register(app: typer.Typer) -> None:
    app.add_typer(where_app, name="where")


@where_app.command("id")
@option_groups
def where_id(
    message_id: MessageIdArgument,
    hexadecimal: HexOption = False,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the message with an offset message ID."""
    with place.client() as client:
        _show(client, client.lookup.by_id(message_id), hexadecimal, output)


@where_app.command("offset")
@option_groups
def where_offset(
    physical_offset: LogOffsetArgument,
    hexadecimal: HexOption = False,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the message that begins at an offset of the log."""
    with place.client() as client:
        _show(client, client.lookup.at(physical_offset), hexadecimal, output)


@where_app.command("queue")
@option_groups
def where_queue(
    topic: str,
    queue_id: Annotated[int, typer.Argument(metavar="QUEUE", min=0)],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0)],
    hexadecimal: HexOption = False,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the message at an offset of a queue."""
    with place.client() as client:
        _show(client, client.lookup.in_queue(topic, queue_id, offset), hexadecimal, output)


@where_app.command("key")
@option_groups
def where_key(
    topic: str,
    key: Annotated[str, typer.Argument(help="One of a message's keys, or its unique key.")],
    hexadecimal: HexOption = False,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the newest message of a topic with a key."""
    with place.client() as client:
        found = client.query_key(topic, key, max_messages=1)
        if found.missing:
            print(f"messages of the tier may be missing: {found.missing}", file=sys.stderr)
        message = next(iter(found.messages), None) or client.lookup.waiting(topic, key)
        if message is None:
            raise NotFoundError(f"no message of {topic} has the key {key}")
        if found.truncated:
            text = "older messages have the key, too: `stratamq query key` lists them"
            print(text, file=sys.stderr)
        _show(client, message, hexadecimal, output)


def _show(client: Client, message: ReceivedMessage, hexadecimal: bool, output: Output) -> None:
    found = client.lookup.where(message)
    notes = Printer(output, ())
    notes.note({"kind": "verdict", "text": found.verdict}, f"{found.verdict}.\n", False)
    cards = Printer(output, (), cards=True)
    frame = frame_fields(message.decode()) if hexadecimal else ()
    row = message_row(message, BodyAs.AUTO, exact=output is Output.JSON)
    cards.row(row, message.frame, frame, message.physical_offset)
    for row in _places(found):
        cards.row(row)
    cards.flush()
    for columns, rows in (
        (KEY_COLUMNS, [_row("key", one) for one in found.keys]),
        (MEMBER_COLUMNS, [_row("member", one) for one in found.members]),
        (GROUP_COLUMNS, [_row("group", one) for one in found.groups]),
    ):
        printer = Printer(output, columns)
        for row in rows:
            printer.row(row)
        printer.flush()
    for text in found.notes:
        notes.note({"kind": "note", "text": text}, text, False)


def _places(found: Whereabouts) -> list[Row]:
    log = found.log
    rows: list[Row] = [
        {
            "kind": "log",
            "broker": log.broker,
            "role": log.role,
            "present": log.present,
            "segment": offset_name(log.segment),
            "position": log.position,
            "flushed": log.flushed,
            "damage": "" if log.damage is None else log.damage.reason,
            "inTier": found.in_tier,
        }
    ]
    if found.queue is not None:
        unit = found.queue.unit
        rows.append(
            {
                "kind": "queue",
                "unitPhyOffset": None if unit is None else unit.physical_offset,
                "unitSize": None if unit is None else unit.size,
                "tagsCode": None if unit is None else unit.tags_code,
                "minOffset": found.queue.min_offset,
                "maxOffset": found.queue.max_offset,
                "hidden": found.hidden,
            }
        )
    if found.waits_for:
        copy = found.delivered_as
        rows.append(
            {
                "kind": "delivery",
                "to": found.waits_for,
                "dueTimestamp": found.due_ms,
                "deliveredAs": None if copy is None else f"{copy.queue_id}@{copy.queue_offset}",
            }
        )
    if found.fate is not None:
        rows.append({**_row("retention", found.fate), "segment": offset_name(log.segment)})
    return rows


_NAMES = {
    "name": "member",
    "until_ms": "untilTimestamp",
    "newest_ms": "newestTimestamp",
    "expires_ms": "expiresTimestamp",
    "deleted_by_ms": "deletedByTimestamp",
}


def _row(kind: str, value: Any) -> Row:
    """The fields of one part; -1, and a time of 0, stand for nothing."""
    row: Row = {"kind": kind}
    for name, found in fields_of(value, _NAMES).items():
        unknown = found == -1 or (name.endswith("Timestamp") and not found)
        row[name] = None if unknown else found
    return row
