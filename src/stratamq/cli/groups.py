"""`stratamq groups`: how far each consumer group is, and where it continues."""

import math
import sys
from typing import Annotated

import typer

from stratamq.cli.completing import GroupArgument
from stratamq.cli.dead_letters import dead_letters_app
from stratamq.cli.dump_output import Output
from stratamq.cli.dump_rows import Row, fields_of
from stratamq.cli.listings import show
from stratamq.cli.moments import PLACES, TIMES, parse_start
from stratamq.cli.options import (
    HERE,
    BrokerTarget,
    OutputOption,
    WatchOption,
    YesOption,
    confirm,
    shown,
)
from stratamq.cli.pending import HELD_COLUMNS, QUEUE_COLUMNS, AtOption, state_of
from stratamq.client import Client, GroupMember, GroupQueue, GroupSettings, HeldMessages
from stratamq.errors import (
    InvalidRequestError,
    NotFoundError,
    NotWritableError,
    UnavailableError,
)
from stratamq.option_groups import option_groups

COLUMNS = ("group", "topic", "queueId", "offset", "maxOffset", "lag")
LAG_COLUMNS = (*COLUMNS, "lagSeconds")
DETAILED_COLUMNS = (*LAG_COLUMNS, "losesInSeconds", "lastCommitTimestamp", "lastClient")
MEMBER_COLUMNS = (
    "group",
    "clientId",
    "address",
    "reads",
    "sinceTimestamp",
    "lastSeenTimestamp",
    "lastCommitTimestamp",
)
SETTINGS_COLUMNS = ("group", "ordered", "retries", "consumeEnabled")
RESET_COLUMNS = ("group", "topic", "queueId", "before", "offset", "maxOffset", "lag")

_NAMED_MEMBERS = 5
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Proceed even if members of the group are reading; lists them."),
]

OrderedOption = Annotated[
    bool | None,
    typer.Option(
        "--ordered/--not-ordered",
        help="Hand out one message of each message group (property __SHARDINGKEY) at a time.",
    ),
]
RetriesOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=9_999,
        help="Hand a message out so many times again before it goes to the dead letters.",
    ),
]
ConsumeOption = Annotated[
    bool | None, typer.Option("--consume/--no-consume", help="Hand out messages at all.")
]

groups_app = typer.Typer(
    help="List consumer groups, reset and delete their offsets, change how they are served.",
    invoke_without_command=True,
)


def register(app: typer.Typer) -> None:
    groups_app.add_typer(dead_letters_app, name="dlq")
    app.add_typer(groups_app, name="groups")


@groups_app.callback()
@option_groups
def all_groups(
    context: typer.Context,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
) -> None:
    if context.invoked_subcommand is None:
        _list(place, output, watch)


@groups_app.command("list")
@option_groups
def list_groups(
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
) -> None:
    """List all groups with their lag in every queue: in messages, and in seconds since the oldest
    of them was stored. The seconds are missing if the log no longer has that message, if it is
    damaged, or if reading it took too long."""
    _list(place, output, watch)


def _list(place: BrokerTarget, output: Output, watch: float | None) -> None:
    def once() -> int:
        with place.client() as client:
            found = client.groups(with_lag_s=True)
        show(output, LAG_COLUMNS, [_row(one) for one in found], "no group has committed an offset")
        return 0

    shown(once, watch)


@groups_app.command("describe")
@option_groups
def describe_group(
    group: GroupArgument,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
    at: AtOption = None,
) -> None:
    """Describe one group: for every queue the next offset, the lag in messages and in seconds,
    after how many seconds retention deletes a message that it has yet to read (empty: none in
    sight), and when and from which address the group last committed an offset of the topic since
    the dispatcher started; then its members (clients that read with its name now) and their queues;
    of a shared group, its settings, and which worker holds which messages, for how long, at which
    attempt. With --at what a shared group had then."""
    if at is not None:
        _describe_past(group, place, at, output)
        return

    def once() -> int:
        with place.client() as client:
            members = client.group_members(group)
            found = client.groups(group, with_losses=True)
            held = _held(client, group)
            settings = _settings(client, group)
        if not found and not members and not settings:
            raise _unknown(group)
        show(
            output,
            DETAILED_COLUMNS,
            [_row(one) for one in found],
            "it has not committed any offset",
        )
        rows = [_member_row(one) for one in members]
        show(output, MEMBER_COLUMNS, rows, "no client is reading with this group")
        if settings:
            show(output, SETTINGS_COLUMNS, [_settings_row(one) for one in settings])
        if held is not None:
            show(output, HELD_COLUMNS, [_held_row(group, one) for one in held], "nothing is held")
        return 0

    shown(once, watch)


def _describe_past(group: str, place: BrokerTarget, at: str, output: Output) -> None:
    if place.address is not None:
        raise InvalidRequestError("--at reads the files of a store: name its directory with --data")
    state = state_of(place.data, at)
    queues = list(state.shared_queues(group))
    if not queues:
        raise NotFoundError(f"the group {group} was not shared at offset {state.offset}")
    show(output, QUEUE_COLUMNS, queues)
    show(output, HELD_COLUMNS, list(state.hand_outs(group)), "nothing was held")


def queues_of_group(client: Client, group: str, topic: str = "") -> list[GroupQueue]:
    """NotFoundError when it has not committed any offset."""
    found = [one for one in client.groups(group) if topic in ("", one.topic)]
    if not found:
        raise _unknown(group, topic)
    return found


def _unknown(group: str, topic: str = "") -> NotFoundError:
    where = f" of {topic}" if topic else ""
    return NotFoundError(f"there is no group {group}: it has not committed any offset{where}")


def members_of_group(client: Client, group: str, topic: str = "") -> list[GroupMember]:
    """Those that read now, with `topic` those that read it."""
    return [one for one in client.group_members(group) if topic in ("", *one.topics)]


def require_no_members(members: list[GroupMember], group: str, force: bool) -> None:
    """InvalidRequestError that names them; with `force` standard error does."""
    if not members:
        return
    named = [
        f"{one.client_id} at {one.address or 'this machine'}" for one in members[:_NAMED_MEMBERS]
    ]
    if len(members) > _NAMED_MEMBERS:
        named.append(f"{len(members) - _NAMED_MEMBERS} more")
    what = (
        f"the group {group} is in use by {', '.join(named)}: a reader that runs commits its own "
        "place again"
    )
    if not force:
        raise InvalidRequestError(f"{what}. Stop them, or add --force")
    print(f"warning: {what}", file=sys.stderr)


@groups_app.command("create")
@option_groups
def create_group(
    group: GroupArgument,
    ordered: OrderedOption = False,
    retries: RetriesOption = None,
    consume: ConsumeOption = True,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a shared group settings of its own; durable on return. A group without them is shared,
    too. Refused if it has some: use `groups alter`."""
    with place.client() as client:
        client.admin.create_group(
            group, ordered=bool(ordered), retries=retries, consume_enabled=bool(consume)
        )
        made = client.group_settings(group)
    show(output, SETTINGS_COLUMNS, [_settings_row(one) for one in made])


@groups_app.command("alter")
@option_groups
def alter_group(
    group: GroupArgument,
    ordered: OrderedOption = None,
    retries: RetriesOption = None,
    consume: ConsumeOption = None,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change the given settings of a shared group; durable on return."""
    if ordered is None and retries is None and consume is None:
        raise InvalidRequestError("nothing to change: name --ordered, --retries or --consume")
    with place.client() as client:
        client.admin.alter_group(group, ordered=ordered, retries=retries, consume_enabled=consume)
        made = client.group_settings(group)
    show(output, SETTINGS_COLUMNS, [_settings_row(one) for one in made])


@groups_app.command("delete")
@option_groups
def delete_group(
    group: GroupArgument,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Show only this topic.")] = "",
    yes: YesOption = False,
    force: ForceOption = False,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a group's offsets, and its settings unless --topic names one topic; a reader with its
    name starts from the beginning. Messages stay.
    Refused while members of the group read: a running member commits its own offset again."""
    with place.client() as client:
        require_no_members(members_of_group(client, group, topic), group, force)
        found = queues_of_group(client, group, topic)
        topics = sorted({one.topic for one in found})
        confirm(
            f"The group {group} was deleted in {len(found)} queues of {', '.join(topics)}.", yes
        )
        client.admin.delete_group(group, topic)
        if not topic and _settings(client, group):
            client.admin.delete_group_settings(group)
    show(output, COLUMNS, [_row(one) for one in found])
    print("deleted", file=sys.stderr)


@groups_app.command("reset")
@option_groups
def reset_group(
    group: GroupArgument,
    to: Annotated[
        str,
        typer.Option(
            metavar=PLACES,
            help="Offset at which the group continues in every queue: N is an offset, -N is"
            f" N messages before the end; TIME: {TIMES}.",
        ),
    ],
    topic: Annotated[
        str,
        typer.Option(
            "--topic", "-t", help="Reset only this topic, even if the group has not read it yet."
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the result without changing anything.")
    ] = False,
    force: ForceOption = False,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set the offset at which a group continues. Refused while members of the group read: a running
    member commits its own offset again.

    An offset that a queue does not hold becomes the nearest that it does.
    """
    start = parse_start(to, option="--to")
    with place.client() as client:
        members = members_of_group(client, group, topic)
        require_no_members(members, group, force or dry_run)
        resets = client.admin.plan_group_reset(group, start, topic)
        if not dry_run:
            client.admin.reset_group(group, resets)
    rows: list[Row] = [
        {
            "kind": "reset",
            "group": group,
            **fields_of(one, lag=one.max_offset - one.offset),
            "before": one.before if one.before >= 0 else None,
        }
        for one in resets
    ]
    show(output, RESET_COLUMNS, rows)
    if dry_run:
        print("nothing was changed (--dry-run)", file=sys.stderr)


@groups_app.command("stop-sharing")
@option_groups
def stop_sharing(group: GroupArgument, yes: YesOption = False, place: BrokerTarget = HERE) -> None:
    """Let a shared group be read with `consume` again. It continues at the first message of each
    queue that is not acknowledged, and repeats those that were acknowledged after it."""
    with place.client() as client:
        found = client.groups(group)
        lag = sum(one.lag for one in found)
        confirm(
            f"The group {group} continues at its offsets: {lag} messages are read from there, and "
            f"what was acknowledged among them is repeated.",
            yes,
        )
        client.stop_sharing(group)
    print("stopped", file=sys.stderr)


def _held(client: Client, group: str) -> list[HeldMessages] | None:
    """None: the group is not shared, or no delivery service answers."""
    try:
        return client.held_messages(group)
    except (NotFoundError, NotWritableError, UnavailableError):
        return None


def _settings(client: Client, group: str) -> list[GroupSettings]:
    """Empty: the group has none, or no delivery service answers."""
    try:
        return client.group_settings(group)
    except (NotFoundError, NotWritableError, UnavailableError):
        return []


def _settings_row(one: GroupSettings) -> Row:
    return {"kind": "settings", **fields_of(one)}


def _held_row(group: str, one: HeldMessages) -> Row:
    return {
        "kind": "held",
        "group": group,
        **fields_of(one, {"until_ms": "untilTimestamp"}, secondsLeft=round(one.seconds_left, 1)),
    }


def _row(one: GroupQueue) -> Row:
    return {
        "kind": "group",
        **fields_of(one, {"lag_s": "lagSeconds", "loses_in_s": "losesInSeconds"}),
        "offset": one.offset if one.offset >= 0 else None,
        "lagSeconds": None if one.lag_s is None else int(one.lag_s),
        "losesInSeconds": _whole(one.loses_in_s),
    }


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None or math.isinf(seconds) else int(seconds)


def _member_row(one: GroupMember) -> Row:
    names = {
        "topics": "reads",
        "since_ms": "sinceTimestamp",
        "last_seen_ms": "lastSeenTimestamp",
        "last_commit_ms": "lastCommitTimestamp",
    }
    reads = {topic: list(queues) for topic, queues in one.topics.items()}
    return {"kind": "member", **fields_of(one, names, reads=reads)}
