"""`stratamq cluster`: who leads a cluster of members, and to whom the lead goes; shards that come
and go (`scaling`)."""

import contextlib
import threading
import time
from typing import Annotated

import typer

from stratamq.cli import scaling
from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.exit_codes import EXIT_ERROR
from stratamq.cli.options import (
    DEFAULT,
    OPERATORS,
    AddressOption,
    BrokerOption,
    DataOption,
    OutputOption,
    open_client,
    seconds,
)
from stratamq.cli.watching import WatchOption, shown
from stratamq.client import Client, Election
from stratamq.errors import NotWritableError, UnavailableError

COLUMNS = ("member", "leads", "agent")
LOOK_S = 0.1

cluster_app = typer.Typer(
    help="Failover by agents: who leads, switchover, pause. Shards: add one, drain one.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    scaling.register(cluster_app)
    app.add_typer(cluster_app, name="cluster", rich_help_panel=OPERATORS)


@cluster_app.command("status")
def status(
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    broker: BrokerOption = "",
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
) -> None:
    """Who leads, by the broker's agent; since when the leader has not renewed; what is wrong.

    Exit code 0: a member leads, has renewed in time, and nothing is wrong. 1: not so.
    """

    def show() -> int:
        with open_client(data, address, broker) as client:
            return _show(client.admin.election(), output)

    shown(show, watch)


@cluster_app.command("switchover")
def switchover(
    to: Annotated[str, typer.Option("--to", metavar="MEMBER", help="the member that is to lead")],
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    broker: BrokerOption = "",
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout", min=0, callback=seconds, help="wait so many seconds for it to be done"
        ),
    ] = 60.0,
) -> None:
    """Let another member lead: the master stops taking messages, ships the rest, and the other is
    promoted. Nothing is lost; refused while no slave has everything.

    Exit codes: 0 it leads, 1 it does not.
    """
    with open_client(data, address, broker) as client:
        began = time.monotonic()
        before = client.admin.election()
        client.admin.switchover(to)
        state = _until_led(client, to, before.term, began + timeout_s)
        seconds = time.monotonic() - began
    if state.leader != to:
        typer.echo(f"error: {state.leader or 'nobody'} leads: {state.last_action}", err=True)
        raise typer.Exit(EXIT_ERROR)
    typer.echo(f"{to} leads after {seconds:.1f} s")


@cluster_app.command("handover")
def handover(
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    broker: BrokerOption = "",
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0, callback=seconds, help="try for so many seconds")
    ] = 25.0,
) -> None:
    """Before this broker is stopped on purpose: if it leads, the slave that has the most does from
    then on. May be called several times at once.

    Exit codes: 0 it leads no more, or did not, 1 it still leads.
    """
    with open_client(data, address, broker) as client:
        deadline_s = time.monotonic() + timeout_s
        pause = threading.Event()
        while (state := client.admin.election()).leader == state.member:
            if not state.switchover and (best := _best_slave(client, state)):
                with contextlib.suppress(NotWritableError):
                    client.admin.switchover(best)
            if time.monotonic() >= deadline_s:
                typer.echo(f"error: {state.member} still leads: {state.last_action}", err=True)
                raise typer.Exit(EXIT_ERROR)
            pause.wait(LOOK_S)
    typer.echo(f"{state.leader or 'nobody'} leads")


def _best_slave(client: Client, state: Election) -> str:
    """The connected member that has the most, of those with an agent; "": there is none."""
    slaves = client.admin.replication_state().slaves
    able = [one for one in slaves if one.connected and one.counts and one.member in state.agents]
    return max(able, key=lambda one: one.acknowledged_offset).member if able else ""


@cluster_app.command("pause")
def pause(
    data: DataOption = DEFAULT, address: AddressOption = None, broker: BrokerOption = ""
) -> None:
    """Let agents promote nobody until `resume`: for maintenance. Leaders go on renewing."""
    with open_client(data, address, broker) as client:
        client.admin.set_failover_paused(True)
    typer.echo("failover is paused: nobody is promoted until `stratamq cluster resume`")


@cluster_app.command("resume")
def resume(
    data: DataOption = DEFAULT, address: AddressOption = None, broker: BrokerOption = ""
) -> None:
    """Let agents promote again."""
    with open_client(data, address, broker) as client:
        client.admin.set_failover_paused(False)
    typer.echo("failover is on again")


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
    led = f"{state.leader} leads, in term {state.term}" if state.leader else "nobody leads"
    ago = f"renewed {state.unchanged_ms / 1000:.0f} s ago, of {state.ttl_ms / 1000:.0f} s"
    facts = {
        "leader": state.leader,
        "term": state.term,
        "unchangedMs": state.unchanged_ms,
        "ttlMs": state.ttl_ms,
        "paused": state.paused,
        "switchover": state.switchover,
        "store": state.store,
        "storeProblem": state.store_problem,
        "lastAction": state.last_action,
    }
    printer.note({"kind": "election", **facts}, f"{led} ({ago}); {state.store}", False)
    if state.paused:
        printer.note({"kind": "report", "text": "paused"}, "failover is paused", False)
    if state.store_problem:
        text = f"the election store was not read: {state.store_problem}"
        printer.note({"kind": "problem", "text": text}, text, True)
    for text in state.problems:
        printer.note({"kind": "problem", "text": text}, text, True)
    wrong = late or not state.leader or state.store_problem or state.problems
    return EXIT_ERROR if wrong else 0
