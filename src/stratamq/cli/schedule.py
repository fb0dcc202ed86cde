"""`stratamq schedule`: messages that wait for their time, and what operators decide about them."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import fields_of
from stratamq.cli.listings import show
from stratamq.cli.options import (
    HERE,
    OPERATORS,
    BrokerTarget,
    OutputOption,
    YesOption,
    confirm,
)
from stratamq.client import HeldSchedule, connect_async
from stratamq.errors import StrataError
from stratamq.option_groups import option_groups

schedule_app = typer.Typer(
    help="List, cancel and deliver messages that wait for their time, and enable the delivery of"
    " what another program left pending.",
    invoke_without_command=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(schedule_app, name="schedule", rich_help_panel=OPERATORS)


@schedule_app.callback()
@option_groups
def show_held(
    context: typer.Context, place: BrokerTarget = HERE, output: OutputOption = Output.TABLE
) -> None:
    if context.invoked_subcommand is None:
        with place.client() as client:
            held = client.admin.held_schedule()
        _show(output, held, held_sentence(held))


COLUMNS = ("place", "dueTimestamp", "level", "held", "topic", "queueId", "messageId", "keys")
PlaceArgument = Annotated[
    str, typer.Argument(metavar="PLACE", help="Its place, as `schedule list` shows it.")
]


@schedule_app.command("list")
@option_groups
def list_scheduled(
    topic: Annotated[str, typer.Option("--topic", help="List messages for this topic.")] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1_000, help="List so many at most.")
    ] = 100,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the messages that wait for their time, soonest first: those of delay levels, and those
    for a time of their own (level 0)."""
    with place.client() as client:
        found = client.admin.scheduled_messages(topic, limit)
    rows = [
        {"kind": "scheduled", **fields_of(one, {"due_ms": "dueTimestamp"})}
        for one in found.messages
    ]
    show(output, COLUMNS, rows, "no message waits" if not found.truncated else "none was found")
    if found.truncated:
        print("there may be more: --limit, --topic, `stratamq pending delayed`", file=sys.stderr)


@schedule_app.command("cancel")
@option_groups
def cancel(message: PlaceArgument, yes: YesOption = False, place: BrokerTarget = HERE) -> None:
    """Never deliver a message that waits for its time; durable.

    A RocketMQ broker that takes the directory over may deliver it.
    """
    confirm(f"Message {message} will never be delivered.", yes)
    with place.client() as client:
        client.admin.cancel_scheduled(message)
    print(f"message {message} is cancelled")


@schedule_app.command("deliver-now")
@option_groups
def deliver_now(message: PlaceArgument, place: BrokerTarget = HERE) -> None:
    """Deliver a message that waits for its time at once, and not again at its time."""
    with place.client() as client:
        client.admin.deliver_scheduled_now(message)
    print(f"message {message} is delivered")


@schedule_app.command("enable")
@option_groups
def enable(
    yes: YesOption = False, place: BrokerTarget = HERE, output: OutputOption = Output.TABLE
) -> None:
    """Deliver the delayed messages that another program stored and left pending, and ask producers
    about its half messages; durable.

    Levels go on where RocketMQ's config/delayOffset.json says that it had delivered; it is written
    every ten seconds, so that a broker that was killed may have delivered a few messages more.
    Messages for a time of their own are delivered if their time is after the last message that
    RocketMQ stored.
    """
    with place.client() as client:
        held = client.admin.held_schedule()
        if held:
            confirm(f"{held_sentence(held)}. They are delivered from now on.", yes)
        held = client.admin.enable_schedule()
    _show(output, held, "enabled" if held else held_sentence(held))


def held_sentence(held: HeldSchedule) -> str:
    if not held:
        return "no message of another program is held"
    kinds = (
        (held.delayed, "delayed"),
        (held.timed, "timed"),
        (held.halves, "half"),
    )
    counts = ", ".join(f"{count} {kind}" for count, kind in kinds if count)
    until = ""
    if held.newest_ms:
        newest = datetime.fromtimestamp(held.newest_ms / 1000, UTC)
        until = f", stored until {newest.isoformat(timespec='seconds')}"
    return f"{counts} messages of another program are held{until}"


async def held_notice(data: Path, timeout_s: float) -> str:
    """A sentence for who starts a broker; empty: nothing is held."""
    async with connect_async(data, timeout_s=timeout_s) as client:
        try:
            held = await client.admin.held_schedule()
        except StrataError as error:
            return f"delayed messages: unknown, the delivery does not respond: {error}"
    return f"{held_sentence(held)}: `stratamq schedule enable` delivers them" if held else ""


def _show(output: Output, held: HeldSchedule, sentence: str) -> None:
    printer = Printer(output, ())
    fields = fields_of(held, {"newest_ms": "newestTimestamp"})
    printer.note({"kind": "held", **fields}, sentence, False)
    printer.flush()
