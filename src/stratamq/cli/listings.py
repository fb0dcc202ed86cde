"""`stratamq topics`, `queues` and `groups`: what the broker has, as tables."""

from typing import Annotated

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import Row
from stratamq.cli.options import DEFAULT, AddressOption, DataOption, OutputOption, open_client
from stratamq.client import Topic

TOPIC_COLUMNS = ("topic", "readQueues", "writeQueues", "permission", "ordered", "systemFlags")
QUEUE_COLUMNS = ("topic", "queueId", "minOffset", "maxOffset", "messages", "newestTimestamp")
GROUP_COLUMNS = ("group", "topic", "queueId", "offset", "maxOffset", "lag")

topics_app = typer.Typer(help="List, create and change topics.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(topics_app, name="topics")
    app.command("queues")(queues)
    app.command("groups")(groups)


@topics_app.command("list")
def list_topics(
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """All topics. Permission: 2 write, 4 read, 6 both."""
    with open_client(data, address) as client:
        found = client.topics()
    _show(output, TOPIC_COLUMNS, [_topic_row(topic) for topic in found])


@topics_app.command("create")
def create_topic(
    topic: str,
    queue_count: Annotated[
        int, typer.Option("--queues", "-q", min=1, help="for reading and writing")
    ] = 4,
    permission: Annotated[int, typer.Option(min=0, max=7, help="2 write, 4 read, 6 both")] = 6,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a topic, or change the one there is; on disk when this returns."""
    with open_client(data, address) as client:
        made = client.admin.put_topic(Topic(topic, queue_count, queue_count, permission))
    _show(output, TOPIC_COLUMNS, [_topic_row(made)])


def queues(
    topic: Annotated[str, typer.Argument(help="only this one")] = "",
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Queues with messages: the offsets that can be read, and the newest message's time."""
    with open_client(data, address) as client:
        found = client.queues(topic)
    rows = [
        {
            "kind": "queue",
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "minOffset": queue.min_offset,
            "maxOffset": queue.max_offset,
            "messages": queue.max_offset - queue.min_offset,
            "newestTimestamp": queue.newest_store_timestamp_ms,
        }
        for queue in sorted(found, key=lambda queue: (queue.topic, queue.queue_id))
    ]
    _show(output, QUEUE_COLUMNS, rows)


def groups(
    group: Annotated[str, typer.Argument(help="only this one")] = "",
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Consumer groups: how far each is in every queue, and how far behind."""
    with open_client(data, address) as client:
        found = client.groups()
    rows = [
        {
            "kind": "group",
            "group": one.group,
            "topic": one.topic,
            "queueId": one.queue_id,
            "offset": one.offset if one.offset >= 0 else None,
            "maxOffset": one.max_offset,
            "lag": one.lag,
        }
        for one in sorted(found, key=lambda one: (one.group, one.topic, one.queue_id))
        if group in ("", one.group)
    ]
    _show(output, GROUP_COLUMNS, rows)


def _topic_row(topic: Topic) -> Row:
    return {
        "kind": "topic",
        "topic": topic.name,
        "readQueues": topic.read_queue_count,
        "writeQueues": topic.write_queue_count,
        "permission": topic.permission,
        "ordered": topic.ordered,
        "systemFlags": topic.system_flags,
    }


def _show(output: Output, columns: tuple[str, ...], rows: list[Row]) -> None:
    printer = Printer(output, columns)
    for row in rows:
        printer.row(row)
    printer.flush()
