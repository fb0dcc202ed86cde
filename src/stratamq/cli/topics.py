"""`stratamq topics`: list, describe, create, alter and purge them."""

import sys
from typing import Annotated

import typer

from stratamq.cli.completing import TopicArgument
from stratamq.cli.dump_output import Output
from stratamq.cli.dump_rows import Row, fields_of
from stratamq.cli.listings import QUEUE_COLUMNS, broker_field, queue_row, show
from stratamq.cli.moments import PLACES, TIMES, parse_start
from stratamq.cli.options import HERE, BrokerTarget, OutputOption, YesOption, confirm
from stratamq.client import MessageType, Topic
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.option_groups import option_groups

COLUMNS = ("topic", "readQueues", "writeQueues", "permission", "ordered", "systemFlags", "type")
PURGE_COLUMNS = ("topic", "queueId", "before", "offset", "maxOffset", "messages")

topics_app = typer.Typer(
    help="List, create, change, purge and delete topics.", no_args_is_help=True
)

PermissionOption = Annotated[
    int | None,
    typer.Option("--permission", min=0, max=7, help="Set the permission: 2 write, 4 read, 6 both."),
]
TypeOption = Annotated[
    MessageType | None,
    typer.Option(
        "--type",
        case_sensitive=False,
        help="Take only messages of this type: FIFO ones have a message group (__SHARDINGKEY), "
        "DELAY ones a time, PRIORITY ones a priority (_SYS_MSG_PRIORITY_), TRANSACTION ones are "
        "half messages. MIXED takes all.",
    ),
]


def register(app: typer.Typer) -> None:
    app.add_typer(topics_app, name="topics")


@topics_app.command("list")
@option_groups
def list_topics(
    contains: Annotated[
        str, typer.Option(metavar="TEXT", help="List topics whose names have this text in them.")
    ] = "",
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """List topics. Permission: 2 write, 4 read, 6 both."""
    with place.client() as client:
        found = client.topics(contains=contains)
    nothing = f"no topic contains {contains}" if contains else "there is no topic"
    show(output, COLUMNS, [topic_row(topic) for topic in found], nothing)


@topics_app.command("describe")
@option_groups
def describe_topic(
    topic: TopicArgument,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a topic's settings, and its queues with messages."""
    with place.client() as client:
        found = client.topics(topic)
        if not found:
            raise NotFoundError(f"there is no topic {topic}")
        queues = client.queues(topic)
    show(output, COLUMNS, [topic_row(one) for one in found])
    nothing = f"the topic {topic} holds no message"
    show(output, QUEUE_COLUMNS, [queue_row(one) for one in queues], nothing)


@topics_app.command("create")
@option_groups
def create_topic(
    topic: str,
    queue_count: Annotated[
        int, typer.Option("--queues", "-q", min=1, help="Set the number of read and write queues.")
    ] = 4,
    permission: PermissionOption = 6,
    ordered: Annotated[
        bool,
        typer.Option("--ordered", help="Tell RocketMQ's clients that keys keep to their queue."),
    ] = False,
    message_type: TypeOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave an existing topic unchanged.")
    ] = False,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a topic; durable on return. Refused if the topic exists: use `topics alter`."""
    if not permission:
        raise typer.BadParameter("--permission 0: a new topic can be written, read, or both")
    with place.client() as client:
        wanted = Topic(
            topic,
            queue_count,
            queue_count,
            permission,
            ordered,
            message_type=message_type or MessageType.UNSPECIFIED,
        )
        client.admin.create_topic(wanted, if_not_exists=if_not_exists)
        made = client.topics(topic)
    show(output, COLUMNS, [topic_row(one) for one in made])


@topics_app.command("alter")
@option_groups
def alter_topic(
    topic: TopicArgument,
    queue_count: Annotated[
        int | None,
        typer.Option("--queues", "-q", min=1, help="Set the number of read and write queues."),
    ] = None,
    read_queues: Annotated[
        int | None, typer.Option(min=1, help="Set the number of read queues.")
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option(min=1, help="Set the number of write queues.")
    ] = None,
    permission: PermissionOption = None,
    ordered: Annotated[
        bool | None,
        typer.Option(
            "--ordered/--not-ordered",
            help="Tell RocketMQ's clients whether keys keep to their queue.",
        ),
    ] = None,
    message_type: TypeOption = None,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change the given settings of a topic; durable on return.

    With fewer queues to read, those that hold messages stay readable. With another type, messages
    that are there stay there; UNSPECIFIED takes the type away.
    """
    changes = (queue_count, read_queues, write_queues, permission, ordered, message_type)
    if all(change is None for change in changes):
        raise InvalidRequestError(
            "nothing to change: name --queues, --read-queues, --write-queues, --permission, "
            "--ordered or --type"
        )
    with place.client() as client:
        client.admin.alter_topic(
            topic,
            read_queue_count=read_queues if read_queues is not None else queue_count,
            write_queue_count=write_queues if write_queues is not None else queue_count,
            permission=permission,
            ordered=ordered,
            message_type=message_type,
        )
        made = client.topics(topic)
    show(output, COLUMNS, [topic_row(one) for one in made])


@topics_app.command("delete")
@option_groups
def delete_topic(
    topic: TopicArgument,
    yes: YesOption = False,
    place: BrokerTarget = HERE,
) -> None:
    """Delete a topic: its messages can no longer be consumed, and its groups' offsets are deleted.

    Producers are refused until `topics create` creates it again, without messages. The log as a
    table still has them; retention frees their space.
    """
    with place.client() as client:
        if not client.topics(topic):
            raise NotFoundError(f"there is no topic {topic}")
        queues = client.queues(topic)
        groups = sorted({one.group for one in client.groups_of_topic(topic)})
        messages = sum(queue.max_offset - queue.min_offset for queue in queues)
        what = f"{_count(messages, 'message')} in {_count(len(queues), 'queue')}"
        forgotten = f"; the groups {', '.join(groups)} forget it" if groups else ""
        confirm(f"{what} of {topic} can no longer be consumed{forgotten}.", yes)
        client.admin.delete_topic(topic)
    print(f"deleted {topic}: {what}{forgotten}", file=sys.stderr)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


@topics_app.command("purge")
@option_groups
def purge_topic(
    topic: TopicArgument,
    before: Annotated[
        str,
        typer.Option(
            metavar=PLACES,
            help="Delete what is before this point: N is an offset, -N keeps the last N "
            f"messages of each queue, latest keeps none; TIME: {TIMES}.",
        ),
    ],
    queue: Annotated[int | None, typer.Option(min=0, help="Purge only this queue.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the result without changing anything.")
    ] = False,
    yes: YesOption = False,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Hide a topic's older messages from consumers permanently: groups with a smaller offset
    continue at the new minimum offset, about a second later. The log as a table still has them;
    retention frees their space."""
    start = parse_start(before, option="--before")
    with place.client() as client:
        purges = client.admin.plan_purge(topic, start, queue)
        count = sum(one.offset - one.before for one in purges)
        if not dry_run and count:
            confirm(f"{count} messages of {topic} can no longer be consumed.", yes)
            client.admin.purge_topic(topic, purges)
    rows: list[Row] = [
        {"kind": "purge", **fields_of(one, messages=one.offset - one.before)} for one in purges
    ]
    show(output, PURGE_COLUMNS, rows)
    if dry_run:
        print("nothing was changed (--dry-run)", file=sys.stderr)
    elif not count:
        print("there is nothing before that", file=sys.stderr)
    else:
        print("purged", file=sys.stderr)


def topic_row(topic: Topic) -> Row:
    return {
        "kind": "topic",
        **broker_field(topic.broker),
        "topic": topic.name,
        "readQueues": topic.read_queue_count,
        "writeQueues": topic.write_queue_count,
        "permission": topic.permission,
        "ordered": topic.ordered,
        "systemFlags": topic.system_flags,
        "type": "" if topic.message_type is MessageType.UNSPECIFIED else topic.message_type.value,
    }
