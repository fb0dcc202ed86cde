"""`stratamq cluster`: the leader of a shard's members, switchover; shards (`shards`, `scaling`)."""

import contextlib
import threading
import time
from typing import Annotated

import typer

from stratamq.cli import scaling, shards
from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import fields_of
from stratamq.cli.exit_codes import EXIT_ERROR
from stratamq.cli.listings import show
from stratamq.cli.options import (
    HERE,
    OPERATORS,
    BrokerTarget,
    OutputOption,
    WatchOption,
    seconds,
    shown,
)
from stratamq.client import Client, Election, Role
from stratamq.client.switching import Precondition, switchover_preconditions
from stratamq.errors import NotWritableError, UnavailableError
from stratamq.option_groups import option_groups

COLUMNS = ("member", "leads", "agent")
LOOK_S = 0.1

cluster_app = typer.Typer(
    help="Manage failover by agents (leader, switchover, pause) and shards (list, add, drain).",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    scaling.register(cluster_app)
    shards.register(cluster_app)
    app.add_typer(cluster_app, name="cluster", rich_help_panel=OPERATORS)


@cluster_app.command("status")
@option_groups
def status(
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
) -> None:
    """Show the leader, how long ago it last renewed its lease, and any faults.

    Exit code 0: a member leads, has renewed in time, and there is no fault. 1: otherwise.
    """

    def once() -> int:
        with place.client() as client:
            return _show(client.admin.election(), output)

    shown(once, watch)


@cluster_app.command("switchover")
@option_groups
def switchover(
    to: Annotated[
        str, typer.Option("--to", metavar="MEMBER", help="Member that becomes the leader.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it needs, and whether that holds.")
    ] = False,
    place: BrokerTarget = HERE,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout", min=0, callback=seconds, help="Wait this many seconds for completion."
        ),
    ] = 60.0,
) -> None:
    """Hand leadership to another member: the master stops taking messages and ships the rest, then
    the other member is promoted. Nothing is lost; refused unless a slave has the whole log.

    Exit codes: 0 the member leads (with --dry-run: all that it needs holds), 1 it does not.
    """
    if dry_run:
        with place.client() as client:
            needs = _preconditions(client, to)
        show(
            Output.TABLE,
            ("needs", "holds", "detail"),
            [{"needs": one.name, "holds": one.holds, "detail": one.detail} for one in needs],
        )
        raise typer.Exit(0 if all(one.holds for one in needs) else EXIT_ERROR)
    with place.client() as client:
        began = time.monotonic()
        before = client.admin.election()
        client.admin.switchover(to)
        state = _until_led(client, to, before.term, began + timeout_s)
        seconds = time.monotonic() - began
    if state.leader != to:
        typer.echo(f"error: {state.leader or 'no member'} leads: {state.last_action}", err=True)
        raise typer.Exit(EXIT_ERROR)
    typer.echo(f"{to} leads after {seconds:.1f} s")


@cluster_app.command("handover")
@option_groups
def handover(
    place: BrokerTarget = HERE,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", min=0, callback=seconds, help="Retry for this many seconds."),
    ] = 25.0,
) -> None:
    """Prepare a planned stop of this broker: if it leads, promote the slave that has the most, and
    wait until that one takes messages. Can safely be called several times at once.

    Exit codes: 0 another member takes messages, or none leads; 1 it does not yet.
    """
    with place.client() as client:
        deadline_s = time.monotonic() + timeout_s
        pause = threading.Event()
        while problem := _kept_by(client, state := client.admin.election()):
            if time.monotonic() >= deadline_s:
                typer.echo(f"error: {problem}", err=True)
                raise typer.Exit(EXIT_ERROR)
            pause.wait(LOOK_S)
    typer.echo(f"{state.leader or 'no member'} leads")


def _kept_by(client: Client, state: Election) -> str:
    """Why this broker may not stop yet; "": it may. Asks for the switchover that it needs.

    The next leader may have to see that this broker is a slave before it takes office, and could
    not ask one that has stopped.
    """
    if state.leader == state.member:
        if not state.switchover and (best := _best_slave(client, state)):
            with contextlib.suppress(NotWritableError):
                client.admin.switchover(best)
        return f"{state.member} still leads: {state.last_action}"
    if not state.leader:
        return ""
    # A member that does not answer has no name among them.
    peers = client.admin.replication_state().peers
    leader = next((one for one in peers if one.answers and one.member == state.leader), None)
    if leader is None or leader.role in (None, Role.SLAVE) or leader.held:
        return f"{state.leader} is to lead, and takes no messages yet"
    return ""


def _preconditions(client: Client, to: str) -> list[Precondition]:
    election = client.admin.election()
    replication = None
    if election.leader == election.member:
        with contextlib.suppress(UnavailableError):
            replication = client.admin.replication_state()
    return switchover_preconditions(to, election, replication)


def _best_slave(client: Client, state: Election) -> str:
    """The connected member that has the most, of those with an agent; "": there is none."""
    slaves = client.admin.replication_state().slaves
    able = [one for one in slaves if one.connected and one.counts and one.member in state.agents]
    return max(able, key=lambda one: one.acknowledged_offset).member if able else ""


@cluster_app.command("pause")
@option_groups
def pause(
    place: BrokerTarget = HERE,
) -> None:
    """Suspend promotions by agents until `resume`, for maintenance. Leaders continue to renew."""
    with place.client() as client:
        client.admin.set_failover_paused(True)
    typer.echo("failover is paused: no member is promoted until `stratamq cluster resume`")


@cluster_app.command("resume")
@option_groups
def resume(
    place: BrokerTarget = HERE,
) -> None:
    """Let agents promote members again."""
    with place.client() as client:
        client.admin.set_failover_paused(False)
    typer.echo("failover is enabled again")


def _until_led(client: Client, to: str, term: int, deadline_s: float) -> Election:
    """The election once `to` leads in a term above `term`, or the switchover was given up, or the
    deadline has passed."""
    pause = threading.Event()
    while True:
        try:
            state = client.admin.election()
        except UnavailableError:
            if time.monotonic() >= deadline_s:
                raise
        else:
            done = state.leader == to and state.term > term
            given_up = not state.switchover and state.leader not in ("", to)
            if done or given_up or time.monotonic() >= deadline_s:
                return state
        pause.wait(LOOK_S)


def _show(state: Election, output: Output) -> int:
    printer = Printer(output, COLUMNS)
    for member, agent in sorted(state.agents.items()):
        leads = member == state.leader
        printer.row({"kind": "member", "member": member, "leads": leads, "agent": agent})
    printer.flush()
    late = state.unchanged_ms > state.ttl_ms
    led = f"{state.leader} leads, in term {state.term}" if state.leader else "no member leads"
    ago = f"renewed {state.unchanged_ms / 1000:.0f} s ago, of {state.ttl_ms / 1000:.0f} s"
    printer.note({"kind": "election", **fields_of(state)}, f"{led} ({ago}); {state.store}", False)
    if state.paused:
        printer.note({"kind": "report", "text": "paused"}, "failover is paused", False)
    if state.store_problem:
        text = f"the election store could not be read: {state.store_problem}"
        printer.note({"kind": "problem", "text": text}, text, True)
    for text in state.problems:
        printer.note({"kind": "problem", "text": text}, text, True)
    wrong = late or not state.leader or state.store_problem or state.problems
    return EXIT_ERROR if wrong else 0
