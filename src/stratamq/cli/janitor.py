"""`stratamq janitor`: what is kept, what goes, and why not."""

from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.cli.dump_output import Output, Printer, show_time
from stratamq.cli.options import DEFAULT, AddressOption, DataOption, OutputOption, open_client

if TYPE_CHECKING:
    from stratamq.client import CleaningLook

TrustOption = Annotated[
    bool,
    typer.Option("--trust-clock", help="the machine's clock is right, whatever the janitor says"),
]
COLUMNS = ("segment", "endOffset", "decision", "reason", "detail")


def register(app: typer.Typer) -> None:
    janitor = typer.Typer(
        name="janitor",
        help="Retention: which log segments are deleted, when, and what holds them back.",
        no_args_is_help=True,
    )
    janitor.command("status")(status)
    janitor.command("plan")(plan)
    janitor.command("run")(run)
    app.add_typer(janitor)


def status(
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """The janitor's last look, and what it has deleted since it was started.

    Exit code 1 while an operator must act: the alarm says why.
    """
    with open_client(data, address) as client:
        state = client.janitor_state()
    printer = Printer(output, COLUMNS)
    if state.last is not None:
        _rows(printer, state.last)
    printer.flush()
    printer.note({"kind": "policy", "text": state.policy}, state.policy, False)
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


def plan(
    manual: Annotated[
        bool, typer.Option("--manual", help="as if asked: expired segments go at any hour")
    ] = False,
    trust_clock: TrustOption = False,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What the janitor would do now. Nothing is changed."""
    with open_client(data, address) as client:
        look = client.plan_cleaning(manual=manual, trust_clock=trust_clock)
    _show(output, look)


def run(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only say what would be deleted")
    ] = False,
    trust_clock: TrustOption = False,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Look now, and delete what may go: expired segments at any hour, the last one never."""
    with open_client(data, address) as client:
        if dry_run:
            look = client.plan_cleaning(manual=True, trust_clock=trust_clock)
        else:
            look = client.run_cleaning(trust_clock=trust_clock)
    _show(output, look)


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
