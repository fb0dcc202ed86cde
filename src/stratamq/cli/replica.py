"""`stratamq replica`: how far slaves are, and a slave that has to begin anew."""

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.options import DEFAULT, AddressOption, DataOption, OutputOption, open_client
from stratamq.client import ReplicationState

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
    """On a master its slaves, on a slave how it follows its master.

    Exit code 0: every slave is connected, or the master is followed. 1: not so.
    """
    with open_client(data, address) as client:
        state = client.replication_state()
    if state.following is None:
        _show_slaves(output, state)
        well = all(one.connected for one in state.slaves)
    else:
        _show_master(output, state)
        well = state.following.connected
    if not well:
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
    sentence = f"slaves connect to {state.replication_address}"
    row = {
        "kind": "master",
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
        }
    )
    printer.flush()
