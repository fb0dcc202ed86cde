"""`stratamq janitor`: what is kept, what goes, and why not."""

from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.cli.dump_output import Output, Printer, show_time
from stratamq.cli.options import HERE, OPERATORS, BrokerTarget, OutputOption
from stratamq.option_groups import option_groups
from stratamq.rpc.rooms import JANITOR

if TYPE_CHECKING:
    from stratamq.client import CleaningLook, LogShare, Retention

TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-clock",
        help="Confirm that the machine's clock is right, even if the janitor doubts it.",
    ),
]
COLUMNS = ("segment", "endOffset", "decision", "reason", "detail")


def register(app: typer.Typer) -> None:
    janitor = typer.Typer(
        name=JANITOR,
        help="Manage retention: which log segments are deleted, when, and what holds them back.",
        no_args_is_help=True,
    )
    janitor.command("status")(status)
    janitor.command("plan")(plan)
    janitor.command("run")(run)
    janitor.command("enable")(enable)
    janitor.command("disable")(disable)
    app.add_typer(janitor, rich_help_panel=OPERATORS)


@option_groups
def status(
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the janitor's last check, and what it has deleted since it started.

    Exit code 1 while an operator must act: the alarm has the reason.
    """
    with place.client() as client:
        state = client.admin.janitor_state()
    printer = Printer(output, COLUMNS)
    if state.last is not None:
        _rows(printer, state.last)
    printer.flush()
    printer.note({"kind": "policy", "text": state.policy}, state.policy, False)
    if state.disabled:
        text = disabled_sentence(state.disabled)
        printer.note({"kind": "disabled", "text": state.disabled}, text, False)
    if state.last is not None:
        _summary(printer, state.last, _counted(state.last.segments, "segment"))
    total = (
        f"{_counted(state.deleted_segments, 'segment')} deleted since the start, "
        f"{_counted(state.freed_bytes, 'byte')}"
    )
    printer.note(
        {"kind": "total", "segments": state.deleted_segments, "bytes": state.freed_bytes},
        total,
        False,
    )
    alarm = state.failure or (state.last.alarm if state.last is not None else "")
    if alarm:
        printer.note({"kind": "problem", "text": alarm}, alarm, True)
        raise typer.Exit(1)


@option_groups
def plan(
    manual: Annotated[
        bool, typer.Option("--manual", help="Delete expired segments now, at any hour.")
    ] = False,
    trust_clock: TrustOption = False,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the retention rule and what the janitor would delete now. Changes nothing."""
    with place.client() as client:
        look = client.admin.plan_cleaning(manual=manual, trust_clock=trust_clock)
        retention = client.admin.retention()
    _show(output, look)
    _retention(Printer(output, COLUMNS), retention)


@option_groups
def run(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted without deleting it.")
    ] = False,
    trust_clock: TrustOption = False,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check now, and delete expired segments at any hour; the last segment is never deleted."""
    with place.client() as client:
        if dry_run:
            look = client.admin.plan_cleaning(manual=True, trust_clock=trust_clock)
        else:
            look = client.admin.run_cleaning(trust_clock=trust_clock)
    _show(output, look)


@option_groups
def enable(
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Allow the janitor to delete from this store by its rule; durable.

    Nothing is deleted from a store that another program made until you run this. `stratamq janitor
    plan` shows what would be deleted. Exit code 1 if the setting janitor.enabled is false.
    """
    _set(True, place, output)


@option_groups
def disable(
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop the janitor from deleting anything from this store; durable.

    The log refuses appends once the disk is full. Exit code 1 if the setting janitor.enabled is
    true.
    """
    _set(False, place, output)


def _set(enabled: bool, place: BrokerTarget, output: Output) -> None:
    with place.client() as client:
        retention = client.admin.set_retention(enabled)
    printer = Printer(output, COLUMNS)
    _retention(printer, retention)
    printer.flush()
    if bool(retention.disabled) is enabled:
        raise typer.Exit(1)


def _retention(printer: Printer, retention: "Retention") -> None:
    row = {
        "kind": "retention",
        "disabled": retention.disabled,
        "policy": retention.policy,
        "atOnceSegments": retention.at_once.segments,
        "atOnceBytes": retention.at_once.size_bytes,
        "expiredSegments": retention.expired.segments,
        "expiredBytes": retention.expired.size_bytes,
    }
    printer.note(row, "\n".join(retention_sentences(retention)), False)


def retention_sentences(retention: "Retention") -> list[str]:
    """The rule in force, and what it takes from the log as it is."""
    at_once, expired = _share(retention.at_once), _share(retention.expired)
    if retention.disabled:
        return [
            disabled_sentence(retention.disabled),
            f"its rule: {retention.policy}",
            f"if enabled, it would delete {at_once} now, {expired} at any hour",
        ]
    return [
        f"retention: {retention.policy}",
        f"this deletes {at_once} now, {expired} at any hour",
    ]


def disabled_sentence(reason: str) -> str:
    return f"retention is disabled, nothing is deleted: {reason}"


def _share(share: "LogShare") -> str:
    return f"{_counted(share.segments, 'segment')} ({_counted(share.size_bytes, 'byte')})"


def _show(output: Output, look: "CleaningLook") -> None:
    printer = Printer(output, COLUMNS)
    _rows(printer, look)
    printer.flush()
    going = f"{len(look.deletions)} to go, {len(look.deleted)} deleted"
    _summary(printer, look, f"{_counted(look.segments, 'segment')}, {going}")
    if look.alarm:
        printer.note({"kind": "problem", "text": look.alarm}, look.alarm, True)


def _summary(printer: Printer, look: "CleaningLook", words: str) -> None:
    printer.note(
        {
            "kind": "look",
            "atMs": look.at_ms,
            "segments": look.segments,
            "diskUsedRatio": look.disk_used_ratio,
            "deleted": list(look.deleted),
            "minimumOffset": look.minimum_offset,
        },
        f"at {show_time(look.at_ms)}: {words}, disk {look.disk_used_ratio:.1%} full",
        False,
    )


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _rows(printer: Printer, look: "CleaningLook") -> None:
    kept = () if look.kept is None else (look.kept,)
    for decision, steps in (("delete", look.deletions), ("held", look.held), ("keep", kept)):
        for one in steps:
            printer.row(
                {
                    "kind": "segment",
                    "segment": one.start_offset,
                    "endOffset": one.end_offset,
                    "decision": decision,
                    "reason": one.reason,
                    "detail": one.sentence,
                }
            )
