"""`stratamq queues`: what the queues hold, as a table."""

import sys
from typing import Annotated

import typer

from stratamq.cli.completing import topic_names
from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import Row, fields_of
from stratamq.cli.options import HERE, BrokerTarget, OutputOption
from stratamq.client import Queue
from stratamq.errors import NotFoundError
from stratamq.option_groups import option_groups

QUEUE_COLUMNS = ("topic", "queueId", "minOffset", "maxOffset", "messages", "newestTimestamp")


def register(app: typer.Typer) -> None:
    app.command("queues")(queues)


@option_groups
def queues(
    topic: Annotated[
        str, typer.Argument(help="Show only this topic.", autocompletion=topic_names)
    ] = "",
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """List queues with messages: the offsets that can be read, and the newest message's time."""
    with place.client() as client:
        found = client.queues(topic)
        if topic and not found and not client.topics(topic):
            raise NotFoundError(f"there is no topic {topic}")
    rows = [queue_row(queue) for queue in sorted(found, key=lambda one: (one.topic, one.queue_id))]
    nothing = f"the topic {topic} holds no message" if topic else "no queue holds a message"
    show(output, QUEUE_COLUMNS, rows, nothing)


def queue_row(queue: Queue) -> Row:
    names = {"newest_store_timestamp_ms": "newestTimestamp"}
    messages = queue.max_offset - queue.min_offset
    return {"kind": "queue", **fields_of(queue, names, messages=messages)}


def broker_field(broker: str) -> Row:
    """Nothing where all is of one broker."""
    return {"broker": broker} if broker else {}


def show(output: Output, columns: tuple[str, ...], rows: list[Row], nothing: str = "") -> None:
    """`nothing` goes to standard error when there are no rows. The broker is a column where rows
    have one."""
    if any("broker" in row for row in rows):
        columns = ("broker", *columns)
    printer = Printer(output, columns)
    for row in rows:
        printer.row(row)
    printer.flush()
    if not rows and nothing:
        print(nothing, file=sys.stderr)
