"""`stratamq groups`: how far each consumer group is, and where it continues."""

import sys
from typing import Annotated

import typer

from stratamq.cli.completing import GroupArgument
from stratamq.cli.confirming import YesOption, confirm
from stratamq.cli.dump_output import Output
from stratamq.cli.dump_rows import Row
from stratamq.cli.listings import show
from stratamq.cli.moments import PLACES, TIMES, parse_start
from stratamq.cli.options import DEFAULT, AddressOption, DataOption, OutputOption, open_client
from stratamq.cli.watching import WatchOption, shown
from stratamq.client import Client, GroupQueue
from stratamq.errors import NotFoundError

COLUMNS = ("group", "topic", "queueId", "offset", "maxOffset", "lag")
DETAILED_COLUMNS = (*COLUMNS, "lastCommitTimestamp", "lastClient")
RESET_COLUMNS = ("group", "topic", "queueId", "before", "offset", "maxOffset", "lag")

groups_app = typer.Typer(
    help="Consumer groups: how far each is in every queue, and where it continues.",
    invoke_without_command=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(groups_app, name="groups")


@groups_app.callback()
def all_groups(
    context: typer.Context,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
) -> None:
    if context.invoked_subcommand is None:
        list_groups(data, address, output, watch)


@groups_app.command("list")
def list_groups(
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
) -> None:
    """All groups, with how far behind each is in every queue."""

    def once() -> int:
        with open_client(data, address) as client:
            found = client.groups()
        show(output, COLUMNS, [_row(one) for one in found], "no group has committed anything")
        return 0

    shown(once, watch)


@groups_app.command("describe")
def describe_group(
    group: GroupArgument,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
) -> None:
    """One group: every queue, the next offset that it reads, how far behind it is; when it
    committed something of the topic last, and from which address, since the dispatcher started."""

    def once() -> int:
        with open_client(data, address) as client:
            found = queues_of_group(client, group)
        show(output, DETAILED_COLUMNS, [_row(one) for one in found])
        return 0

    shown(once, watch)


def queues_of_group(client: Client, group: str, topic: str = "") -> list[GroupQueue]:
    """NotFoundError when it has committed nothing."""
    found = [one for one in client.groups() if one.group == group and topic in ("", one.topic)]
    if not found:
        where = f" of {topic}" if topic else ""
        raise NotFoundError(
            f"there is no group {group}: none of this name has committed anything{where}"
        )
    return found


@groups_app.command("delete")
def delete_group(
    group: GroupArgument,
    topic: Annotated[str, typer.Option("--topic", "-t", help="only of this one")] = "",
    yes: YesOption = False,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Forget where a group is; a reader of its name begins anew. Messages stay. Stop its readers
    first: one that runs commits its own place again."""
    with open_client(data, address) as client:
        found = queues_of_group(client, group, topic)
        topics = sorted({one.topic for one in found})
        confirm(
            f"The group {group} is forgotten in {len(found)} queues of {', '.join(topics)}.", yes
        )
        client.admin.delete_group(group, topic)
    show(output, COLUMNS, [_row(one) for one in found])
    print("deleted", file=sys.stderr)


@groups_app.command("reset")
def reset_group(
    group: GroupArgument,
    to: Annotated[
        str,
        typer.Option(
            metavar=PLACES,
            help="where it continues in every queue: N is an offset, -N so many messages before "
            f"the end; TIME: {TIMES}",
        ),
    ],
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="only this one, also when the group is new there")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show it, and change nothing")] = False,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set where a group continues. Stop its readers first: one that runs commits its own place
    again.

    An offset that a queue does not hold becomes the nearest that it does.
    """
    start = parse_start(to, option="--to")
    with open_client(data, address) as client:
        resets = client.admin.plan_group_reset(group, start, topic)
        if not dry_run:
            client.admin.reset_group(group, resets)
    rows: list[Row] = [
        {
            "kind": "reset",
            "group": group,
            "topic": one.topic,
            "queueId": one.queue_id,
            "before": one.before if one.before >= 0 else None,
            "offset": one.offset,
            "maxOffset": one.max_offset,
            "lag": one.max_offset - one.offset,
        }
        for one in resets
    ]
    show(output, RESET_COLUMNS, rows)
    if dry_run:
        print("nothing was changed (--dry-run)", file=sys.stderr)


def _row(one: GroupQueue) -> Row:
    return {
        "kind": "group",
        "group": one.group,
        "topic": one.topic,
        "queueId": one.queue_id,
        "offset": one.offset if one.offset >= 0 else None,
        "maxOffset": one.max_offset,
        "lag": one.lag,
        "lastCommitTimestamp": one.last_commit_timestamp_ms,
        "lastClient": one.last_client,
    }
