"""`stratamq schedule`: messages that another program left pending, and their delivery."""

from datetime import UTC, datetime
from pathlib import Path

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.options import (
    HERE,
    OPERATORS,
    BrokerTarget,
    OutputOption,
    YesOption,
    at_broker,
    confirm,
)
from stratamq.client import HeldSchedule, connect_async
from stratamq.errors import StrataError

schedule_app = typer.Typer(
    help="Show what another program left pending, and enable its delivery.",
    invoke_without_command=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(schedule_app, name="schedule", rich_help_panel=OPERATORS)


@schedule_app.callback()
@at_broker
def show_held(
    context: typer.Context, place: BrokerTarget = HERE, output: OutputOption = Output.TABLE
) -> None:
    if context.invoked_subcommand is None:
        with place.client() as client:
            held = client.admin.held_schedule()
        _show(output, held, held_sentence(held))


@schedule_app.command("enable")
@at_broker
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
    row = {
        "kind": "held",
        "delayed": held.delayed,
        "timed": held.timed,
        "halves": held.halves,
        "newestTimestamp": held.newest_ms,
    }
    printer.note(row, sentence, False)
    printer.flush()
