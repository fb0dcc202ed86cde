"""`stratamq replica`: how far slaves are, who is the master, and a slave that has to begin anew."""

from typing import Annotated

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.options import DEFAULT, AddressOption, DataOption, OutputOption, open_client
from stratamq.cli.up import BrokerRole
from stratamq.client import ReplicationState, Role

SLAVE_COLUMNS = (
    "address",
    "name",
    "connected",
    "acknowledged",
    "lagBytes",
    "lagMs",
    "bytesPerSecond",
    "problem",
)
MASTER_COLUMNS = (
    "master",
    "connected",
    "appended",
    "received",
    "bytesPerSecond",
    "needsResync",
    "problem",
)

PEER_COLUMNS = ("address", "answers", "role", "term", "end", "problem")

replica_app = typer.Typer(
    help="Replication: a master's slaves, a slave's master.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    app.add_typer(replica_app, name="replica")


@replica_app.command("status")
def status(
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """On a master its slaves, on a slave how it follows its master; the peers, and what is wrong.

    Exit code 0: every slave is connected and messages are taken, or the master is followed. 1: not
    so.
    """
    with open_client(data, address) as client:
        state = client.replication_state()
    if state.following is None:
        _show_slaves(output, state)
        well = all(one.connected for one in state.slaves) and not state.held_reason
    else:
        _show_master(output, state)
        well = state.following.connected
    _show_peers(output, state)
    _show_role(output, state)
    if not well or state.problem:
        raise typer.Exit(1)


@replica_app.command("resync")
def resync(data: DataOption = DEFAULT, address: AddressOption = None) -> None:
    """Let a slave whose log is of another history begin anew, with its master's.

    What its log holds is moved to stratamq/aside/ in its directory. It happens when the slave next
    reaches its master, at once if it can; `stratamq replica status` says when it follows.
    """
    with open_client(data, address) as client:
        client.resync()
    typer.echo("the slave begins anew when it next reaches its master")


@replica_app.command("promote")
def promote(
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    role: Annotated[
        BrokerRole | None,
        typer.Option(
            help="async-master or sync-master; without it, what commitlog.role says, else what the "
            "last known master was"
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="although something speaks against it")
    ] = False,
) -> None:
    """Make a slave the master, in a term of its own: whoever hears of that stops taking messages.

    Promote the slave with the greatest (generation, end): `stratamq replica status` on each says
    them, and a promotion is refused when a peer has more, when the master answers, or when the log
    is empty or has nothing of its master's history. What is known to be missing is said. The old
    master, when it comes back, keeps aside what this one does not have, and follows.

    Exit codes: 0 it is the master, 1 it is not.
    """
    wanted = None if role is None else Role[role.name]
    with open_client(data, address) as client:
        done = client.promote(wanted, force=force)
    for sentence in done.missing:
        typer.echo(f"missing: {sentence}")
    assert done.role is not None
    typer.echo(
        f"this broker is {done.role.name} of term {done.term} from now on; what it writes begins "
        f"at {done.start_offset}"
    )


@replica_app.command("demote")
def demote(
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="where the new master's slaves connect (`stratamq replica status` there says "
            "where); without it, a peer that is promoted is found (ha.peers)",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="although no slave has everything")
    ] = False,
) -> None:
    """Make a master a slave: it takes no more messages, ships the rest, and follows another.

    The first half of a planned change of masters; `stratamq replica promote` on the other broker
    is the second. Refused when no slave has everything. On a slave: whom it follows from now on.

    Exit codes: 0 it is a slave, 1 it is not.
    """
    with open_client(data, address) as client:
        done = client.demote(master or "", force=force)
    for sentence in done.missing:
        typer.echo(f"missing: {sentence}")
    typer.echo(
        f"this broker is a slave from now on and follows {done.master_address}"
        if done.master_address
        else "this broker is a slave from now on and follows whichever peer is promoted"
    )


def _show_peers(output: Output, state: ReplicationState) -> None:
    if not state.peers:
        return
    printer = Printer(output, PEER_COLUMNS)
    for one in state.peers:
        printer.row(
            {
                "kind": "peer",
                "address": one.address,
                "answers": one.answers,
                "role": one.role.name if one.role else "",
                "term": one.term,
                "generation": one.generation,
                "end": one.end_offset,
                "problem": one.problem,
            }
        )
    printer.flush()


def _show_role(output: Output, state: ReplicationState) -> None:
    printer = Printer(output, ())
    said = [("roleReason", state.role_reason, False), ("heldReason", state.held_reason, True)]
    for name, sentence, bad in [*said, ("problem", state.problem, True)]:
        if sentence:
            kind = "problem" if bad else "report"
            shown = f"takes no messages: {sentence}" if name == "heldReason" else sentence
            printer.note({"kind": kind, name: sentence}, shown, bad)


def _show_slaves(output: Output, state: ReplicationState) -> None:
    printer = Printer(output, SLAVE_COLUMNS)
    for one in state.slaves:
        printer.row(
            {
                "kind": "slave",
                "address": one.address,
                "name": one.name,
                "connected": one.connected,
                "acknowledged": one.acknowledged_offset,
                "lagBytes": one.lag_bytes,
                "lagMs": one.lag_ms,
                "bytesPerSecond": round(one.bytes_per_second),
                "problem": one.problem,
            }
        )
    printer.flush()
    role = state.role.name if state.role else "no role"
    sentence = f"{role} of term {state.term}; slaves connect to {state.replication_address}"
    row = {
        "kind": "master",
        "role": role,
        "term": state.term,
        "replicationAddress": state.replication_address,
        "shippable": state.shippable_offset,
        "generation": state.generation,
    }
    printer.note(row, sentence, False)


def _show_master(output: Output, state: ReplicationState) -> None:
    following = state.following
    assert following is not None
    printer = Printer(output, MASTER_COLUMNS)
    printer.row(
        {
            "kind": "following",
            "master": following.master_address,
            "connected": following.connected,
            "appended": following.appended_offset,
            "received": following.received_offset,
            "bytesPerSecond": round(following.bytes_per_second),
            "needsResync": following.needs_resync,
            "problem": following.problem,
            "term": state.term,
            "generation": state.generation,
            "listens": state.listening_address,
        }
    )
    printer.flush()
    if output is Output.TABLE:
        sentence = (
            f"SLAVE of term {state.term}, generation {state.generation}; as a master it takes "
            f"slaves at {state.listening_address}"
        )
        printer.note({"kind": "report"}, sentence, False)
