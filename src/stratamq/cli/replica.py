"""`stratamq replica`: replication state, changes of roles and members, and resync of a slave."""

import random
from typing import Annotated

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import fields_of
from stratamq.cli.options import (
    DEFAULT,
    HERE,
    OPERATORS,
    BrokerTarget,
    OutputOption,
    StoppedDataOption,
)
from stratamq.cli.up import BrokerRole
from stratamq.client import ReplicationState, Role
from stratamq.files.real import RealFiles
from stratamq.formats.members import Members
from stratamq.option_groups import option_groups
from stratamq.service.file_modes import use_file_modes
from stratamq.store.identity import mark_restored

SLAVE_COLUMNS = (
    "address",
    "name",
    "member",
    "connected",
    "counts",
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

PEER_COLUMNS = ("member", "address", "answers", "role", "term", "end", "problem")

replica_app = typer.Typer(help="Show replication and change roles.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(replica_app, name="replica", rich_help_panel=OPERATORS)


@replica_app.command("status")
@option_groups
def status(
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a master's slaves, or how a slave follows its master, with the members and any faults.

    Exit code 0: every slave is connected and messages are taken, or the slave follows its master.
    1: otherwise.
    """
    with place.client() as client:
        state = client.admin.replication_state()
    if state.following is None:
        _show_slaves(output, state)
        well = all(one.connected for one in state.slaves) and not state.held_reason
    else:
        _show_master(output, state)
        well = state.following.connected
    _show_peers(output, state)
    _show_members(output, state)
    _show_role(output, state)
    if not well or state.problem:
        raise typer.Exit(1)


@replica_app.command("resync")
@option_groups
def resync(
    place: BrokerTarget = HERE,
) -> None:
    """Discard a slave's log, whose history is not its master's, and copy the master's from the
    start.

    The slave's log is moved to stratamq/aside/ in its directory when the slave next reaches its
    master, at once if possible; `stratamq replica status` shows when it follows.
    """
    with place.client() as client:
        client.admin.resync()
    typer.echo("the slave discards its log and starts over when it next reaches its master")


@replica_app.command("promote")
@option_groups
def promote(
    place: BrokerTarget = HERE,
    role: Annotated[
        BrokerRole | None,
        typer.Option(
            help="Role: async-master or sync-master. The default is commitlog.role, or the "
            "role of the last known master."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Proceed even if there are reasons against it.")
    ] = False,
) -> None:
    """Make a slave the master, in a new term: every master that learns of the term stops taking
    messages.

    Promote the slave with the greatest (generation, end): `stratamq replica status` on each shows
    them. First, n − k of the n members (k acknowledgements are required) promise the term to this
    broker, itself included: of any n − k, one has each message that was answered PUT_OK. A
    promotion is refused if fewer promise, if another member has more, if the master answers, or if
    the log is empty, new in the cluster, or shares no history with its master. Messages that are
    known to be missing are reported. When the old master returns, it moves aside what this one does
    not have, and follows.

    Exit codes: 0 it is the master, 1 it is not.
    """
    wanted = None if role is None else Role[role.name]
    with place.client() as client:
        done = client.admin.promote(wanted, force=force)
    for sentence in done.missing:
        typer.echo(f"missing: {sentence}")
    assert done.role is not None
    typer.echo(
        f"this broker is {done.role.name} of term {done.term}; what it writes begins "
        f"at {done.start_offset}"
    )


@replica_app.command("demote")
@option_groups
def demote(
    place: BrokerTarget = HERE,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Replication address of the new master (see `stratamq replica status` "
            "there). The default is the promoted member of ha.members.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Proceed even if no slave has the whole log.")
    ] = False,
) -> None:
    """Make a master a slave: it stops taking messages, ships the rest, and follows another broker.

    This is the first half of a planned change of masters; `stratamq replica promote` on the other
    broker is the second. Refused unless a slave has the whole log. On a slave, it changes which
    broker the slave follows.

    Exit codes: 0 it is a slave, 1 it is not.
    """
    with place.client() as client:
        done = client.admin.demote(master or "", force=force)
    for sentence in done.missing:
        typer.echo(f"missing: {sentence}")
    typer.echo(
        f"this broker is now a slave and follows {done.master_address}"
        if done.master_address
        else "this broker is now a slave and follows whichever member is promoted"
    )


@replica_app.command("remove")
@option_groups
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Member, named as in ha.members.")],
    place: BrokerTarget = HERE,
    force: Annotated[
        bool, typer.Option("--force", help="Proceed even if the member answers.")
    ] = False,
) -> None:
    """Remove a member that is permanently dead from its cluster, so that the quorum no longer
    includes it.

    Run this at the master; if the master itself is dead, promote another member first. The removal
    is durable, the others receive it, and k becomes at most n − 1. Two members cannot decide by
    themselves which of them is dead, so the operator decides. Refused if the member answers, and
    while another member lacks messages.

    Exit codes: 0 it is removed, 1 it is not.
    """
    with place.client() as client:
        done = client.admin.remove_member(name, force=force)
    for sentence in done.costs:
        typer.echo(f"note: {sentence}")
    typer.echo(_members_in_force(done.members))


@replica_app.command("admit")
@option_groups
def admit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Member, named as in ha.members.")],
    place: BrokerTarget = HERE,
) -> None:
    """Admit a removed member again, or a new one, at the master.

    A new member comes last in the master's ha.members. It is not counted in the quorum until it has
    heard enough of the others and has what the master had confirmed by then.

    Exit codes: 0 it is admitted, 1 it is not.
    """
    with place.client() as client:
        members = client.admin.admit_member(name)
    typer.echo(_members_in_force(members))


@replica_app.command("restored")
def restored(
    data: StoppedDataOption = DEFAULT,
) -> None:
    """Mark a store directory as restored from a backup, before a broker runs on it.

    The directory gets a new identity and starts as a slave without any promised term, because it
    does not know what happened after the backup. It is not counted in the quorum until it has what
    the master has. If the backup is all that is left, promote it: `stratamq replica promote
    --force`.

    Exit codes: 0 it is marked, 3 a broker runs on it, or it holds no store.
    """
    use_file_modes()
    identity = mark_restored(RealFiles(data), random.SystemRandom())
    typer.echo(
        f"{data} is marked as restored with the identity {identity.number}: start its broker, "
        "which "
        "is a slave at first"
    )


def _members_in_force(members: Members) -> str:
    names = ", ".join(member.name for member in members.active)
    return (
        f"members of version {members.version}: {names}; {members.required} acknowledgements of "
        f"slaves are required, {members.quorum} votes needed for a promotion"
    )


def _show_members(output: Output, state: ReplicationState) -> None:
    if state.members is None:
        return
    printer = Printer(output, ())
    sentence = _members_in_force(state.members) + f"; this one is {state.member}"
    row = {
        "kind": "members",
        "version": state.members.version,
        "required": state.members.required,
        "member": state.member,
        "members": [member.name for member in state.members.active],
        "rejoining": state.rejoining,
        "promisedTo": state.promised_to,
    }
    printer.note(row, sentence, False)
    if state.rejoining:
        sentence = (
            "rejoining: this directory is new in its cluster, and is not counted in the quorum "
            "until it has what the master has"
        )
        printer.note({"kind": "problem", "rejoining": sentence}, sentence, True)


def _show_peers(output: Output, state: ReplicationState) -> None:
    if not state.peers:
        return
    printer = Printer(output, PEER_COLUMNS)
    for one in state.peers:
        role = one.role.name if one.role else ""
        printer.row({"kind": "peer", **fields_of(one, {"end_offset": "end"}, role=role)})
    printer.flush()


def _show_role(output: Output, state: ReplicationState) -> None:
    printer = Printer(output, ())
    reasons = [("roleReason", state.role_reason, False), ("heldReason", state.held_reason, True)]
    for name, sentence, bad in [*reasons, ("problem", state.problem, True)]:
        if sentence:
            kind = "problem" if bad else "report"
            shown = f"takes no messages: {sentence}" if name == "heldReason" else sentence
            printer.note({"kind": kind, name: sentence}, shown, bad)


def _show_slaves(output: Output, state: ReplicationState) -> None:
    printer = Printer(output, SLAVE_COLUMNS)
    for one in state.slaves:
        speed = round(one.bytes_per_second)
        row = fields_of(one, {"acknowledged_offset": "acknowledged"}, bytesPerSecond=speed)
        printer.row({"kind": "slave", **row})
    printer.flush()
    if not state.slaves:
        typer.echo("no slave is connected", err=True)
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
    names = {
        "master_address": "master",
        "appended_offset": "appended",
        "received_offset": "received",
    }
    speed = round(following.bytes_per_second)
    row = fields_of(following, names, bytesPerSecond=speed, listens=state.listening_address)
    row |= {"term": state.term, "generation": state.generation}
    printer.row({"kind": "following", **row})
    printer.flush()
    if output is Output.TABLE:
        sentence = (
            f"SLAVE of term {state.term}, generation {state.generation}; as a master it takes "
            f"slaves at {state.listening_address}"
        )
        printer.note({"kind": "report"}, sentence, False)
