"""`stratamq torture`: each command one trial of the promise that nothing acknowledged is lost.

What works is imported when it is called: every other command of `stratamq` imports this module.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from stratamq.cli.dump_output import Output
from stratamq.cli.exit_codes import EXIT_INTERRUPTED
from stratamq.cli.options import BUILDERS
from stratamq.rpc.rooms import JANITOR

if TYPE_CHECKING:
    from stratamq_torture.trial import Options, Progress, Report, SeedsTrial

    Trial = Callable[[Options, Progress], Report]

PLENTY = 1_000_000
"""More rounds than any time is enough for: the seconds end a trial."""
SYNC, ASYNC = "SYNC_FLUSH", "ASYNC_FLUSH"

Seeds = Annotated[int, typer.Option(min=1, help="Run this many random workloads.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="Start at this seed.")]
Jobs = Annotated[int, typer.Option(min=0, help="Use this many processes; 0: one per CPU.")]
Operations = Annotated[int, typer.Option(min=1, help="Run this many operations per workload.")]
Seconds = Annotated[
    float, typer.Option(min=0, help="Start nothing new after this many seconds; 0: run all.")
]
Without = Annotated[
    list[str] | None,
    typer.Option(help="Disable this rule, to see what it prevents; repeatable."),
]
Trace = Annotated[bool, typer.Option("--trace", help="Show each operation of failing seeds.")]
Shown = Annotated[
    Output,
    typer.Option("--output", "-o", help="Print a table, or JSON as the last line."),
]
Named = TypeVar("Named")


def register(app: typer.Typer) -> None:
    """Called by the command line through the entry-point group `stratamq.commands`."""
    torture = typer.Typer(
        name="torture",
        help="Test durability under crashes, kills, power losses, damage and full disks.",
        no_args_is_help=True,
    )
    torture.command("all")(everything)
    torture.command("agents", help=AGENTS)(_of_seeds(_agents))
    torture.command("brokers", help=BROKERS)(_of_seeds(_brokers, 100))
    for command in (damage, delivery, disk, hostile):
        torture.command()(command)
    torture.command(JANITOR, help=CLOCKS)(_of_seeds(_janitors))
    torture.command("delivery-sim", help=DELIVERIES)(_of_seeds(_deliveries))
    for command in (kill, order, power, protocol, replicas, resend, sim):
        torture.command()(command)
    torture.command("tier", help=TIERS)(_of_seeds(_tiers))
    app.add_typer(torture, rich_help_panel=BUILDERS)


# --- how every trial begins and ends ---


@contextmanager
def counting(total: int | None, unit: str) -> "Iterator[Progress]":
    """Gives what a trial is to call with how many are done and how many of them failed, or None
    when standard error is no terminal. `total` None: not known."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def show(done: int, failed: int) -> None:
            bar.update(task, completed=done, description=f"{failed} failed" if failed else "")

        yield show


def _run(
    output: Output, unit: str, total: int | None, trial: "Callable[[Progress], Report]"
) -> None:
    with counting(total, unit) as progress:
        report = trial(progress)
    _finish([report], output)


def _finish(reports: "list[Report]", output: Output) -> None:
    """Show what was found; exit code 1 when a promise was broken."""
    from rich.console import Console

    from stratamq_torture.trial import as_json, print_table

    if output is Output.JSON:
        sys.stdout.write(as_json(reports) + "\n")
    else:
        print_table(reports, Console(width=None if sys.stdout.isatty() else 160))
    if not all(report.passed for report in reports):
        raise typer.Exit(1)
    if any(report.interrupted for report in reports):
        raise typer.Exit(EXIT_INTERRUPTED)


def _workers(jobs: int) -> int:
    return jobs or os.cpu_count() or 1


def _known(names: Iterable[str] | None, rules: Mapping[str, str]) -> tuple[str, ...]:
    """The rules to go without; wrong usage for a name that is none."""
    unknown = [name for name in names or () if name not in rules]
    if unknown:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: the rules are {', '.join(rules) or 'none'}",
            param_hint="--without",
        )
    return tuple(names or ())


def _listed(
    what: str, name: str, known: Mapping[str, Named], doc: Callable[[Named], str | None], width: int
) -> bool:
    """Whether `list` was given, and all are shown; wrong usage for a name that is none."""
    if name == "list":
        for one, value in known.items():
            typer.echo(f"{one:{width}}{' '.join((doc(value) or '').split())}")
    elif name and name not in known:
        raise typer.BadParameter(f"there is no {what} {name!r}: `--{what} list` shows them all")
    return name == "list"


# --- simulations by their seeds ---

BROKERS = """Crash, isolate, replace and promote two or three brokers of one name, and check that
every acknowledged message is on the broker that serves.

Their logs and replication run in one process, on disks, power supplies and a network that fail at
random. At the end all logs must be equal, byte for byte."""
AGENTS = """Pause, kill and isolate agents and brokers, lose, delay and duplicate responses of the
election store, and check that at most one master acknowledges at any moment, and that one leads at
the end.

The real code of agents and of the log's lease runs in simulated time, with clocks that differ."""
CLOCKS = """Move the wall clock forward and back, between the janitor's checks and during them, and
check that nothing expires by a time that the clock has shown for less than the grace period.

The real code of the janitor and of the log's engine runs in simulated time."""
DELIVERIES = """Crash the delivery, its log and its dispatcher under delayed messages, transactions
and shared groups, lose power, promote slaves, fill disks and move clocks, and check that each
message that is to come comes once, and no other.

The real code of the delivery and of the log runs on simulated disks in simulated time. What clients
were told is compared with the log, which `stratamq audit delivery` judges, too."""
TIERS = """Crash, pause and fence the writers of a tier, promote brokers with other histories, lose
responses and tear writes, and check that the tier equals the log.

The real code of the tier service runs over a simulated storage, one event at a time. At the end
every message that belongs in the tier must be there once, byte for byte, and found by its key."""


def _trial(module: str) -> "SeedsTrial":
    trial: SeedsTrial = import_module(f"stratamq_torture.{module}").TRIAL
    return trial


_agents = partial(_trial, "agents.simulation")
_brokers = partial(_trial, "brokers.simulation")
_deliveries = partial(_trial, "deliveries.simulation")
_janitors = partial(_trial, "janitor")
_tiers = partial(_trial, "tier.simulation")


def _of_seeds(trial: "Callable[[], SeedsTrial]", most: int = 60) -> Callable[..., None]:
    """`most`: operations of a workload, unless it is given."""

    def command(
        seeds: Seeds = 100,
        first_seed: FirstSeed = 0,
        jobs: Jobs = 0,
        operations: Operations = most,
        seconds: Seconds = 0,
        without: Without = None,
        trace: Trace = False,
        output: Shown = Output.TABLE,
    ) -> None:
        # What is simulated warns about every fault that is planned for it.
        logging.disable()
        from stratamq_torture.trial import Options

        found = trial()
        rules = _known(without, found.rules)
        options = Options(seeds, first_seed, seconds, _workers(jobs), operations, trace, rules)
        _run(output, "seeds", seeds, partial(found.simulate, options))

    return command


def sim(
    seeds: Seeds = 200,
    first_seed: FirstSeed = 0,
    jobs: Jobs = 0,
    operations: Operations = 150,
    seconds: Seconds = 0,
    shrink: Annotated[
        bool,
        typer.Option("--shrink", help="Reduce failing seeds to the operations needed."),
    ] = False,
    keep: Annotated[str, typer.Option(help="Run only these operations: 1,2,17.")] = "",
    trace: Trace = False,
    enumerate_: Annotated[
        bool,
        typer.Option("--enumerate", help="Run every short workload instead of seeds."),
    ] = False,
    depth: Annotated[
        int, typer.Option(min=1, max=3, help="With --enumerate: maximum operations of a workload.")
    ] = 3,
    crashed: Annotated[
        int,
        typer.Option(
            min=0,
            max=3,
            help="With --enumerate: test each crash point of the last of up to this many.",
        ),
    ] = 2,
    case: Annotated[str, typer.Option(help="With --enumerate: run only this workload.")] = "",
    output: Shown = Output.TABLE,
) -> None:
    """Crash a whole broker on a simulated disk, and check every guarantee after each start.

    Commit log, dispatcher and index run in one process on a disk, a kernel and a power supply that
    fail at random. A seed decides everything: a failure can be reproduced on any machine.
    """
    # The engines warn about every fault that is planned for them.
    logging.disable()
    from stratamq_torture.simulated.trial import enumerate_all, simulate
    from stratamq_torture.trial import Options

    if enumerate_ or case:
        options = Options(0, 0, seconds, _workers(jobs), depth, trace)
        work = partial(enumerate_all, options, crashed=min(crashed, depth), case=_case(case))
        _run(output, "cases", None, work)
        return
    numbers = _numbers(keep)
    count = 1 if numbers else seeds
    options = Options(count, first_seed, seconds, _workers(jobs), operations, trace)
    _run(output, "seeds", count, partial(simulate, options, shorten=shrink, keep=numbers))


def _case(text: str) -> str:
    from stratamq_torture.simulated.trial import Case

    try:
        return str(Case.parse(text)) if text else ""
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--case") from None


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in text.split(",") if word)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint="--keep") from None
    if numbers and min(numbers) < 1:
        raise typer.BadParameter("operations are numbered from 1", param_hint="--keep")
    return numbers


def protocol(
    without: Without = None,
    short: Annotated[bool, typer.Option("--short", help="Run only what takes seconds.")] = False,
    jobs: Jobs = 0,
    seconds: Seconds = 0,
    output: Shown = Output.TABLE,
) -> None:
    """Search every state of two to four members that append, acknowledge, crash, lose and restore
    disks, are promoted and removed, and check that no acknowledged message is ever missing.

    This is a model of the protocol of docs/decisions/009, without production code. With a rule
    disabled it shows the shortest path to a loss.
    """
    from stratamq_torture.protocol_model.state import RULES
    from stratamq_torture.protocol_model.trial import LONG, SHORT, check
    from stratamq_torture.trial import Options

    scopes = SHORT if short else LONG
    options = Options(seconds=seconds, jobs=_workers(jobs), without=_known(without, RULES))
    _run(output, "scopes", len(scopes), partial(check, options, scopes=scopes))


# --- the real engines and services ---


def damage(
    rounds: Annotated[int, typer.Option(min=1, help="Damage this many files.")] = 400,
    first_seed: FirstSeed = 0,
    jobs: Jobs = 0,
    seconds: Seconds = 0,
    checksum: Annotated[
        bool, typer.Option(help="Choose whether records have a checksum of their own.")
    ] = True,
    trace: Annotated[bool, typer.Option("--trace", help="Print every round.")] = False,
    output: Shown = Output.TABLE,
) -> None:
    """Damage one file of a stopped store, start the engines on it twice, and read everything.

    A seed chooses the type of file (segments, queue and index files, all others), the kind of
    damage (a flipped bit, zeros, garbage, another length, another file's content, a directory, a
    link, a FIFO, …), the file and the place. A service must start, or refuse with a reason. What it
    serves must be what was written, byte for byte, and include everything undamaged; what is cut
    must be in stratamq/aside/; queues and index must be complete again at the end.
    """
    from stratamq_torture.damage.trial import run_damage
    from stratamq_torture.trial import Options

    options = Options(rounds, first_seed, seconds, _workers(jobs), trace=trace)
    _run(output, "rounds", rounds, partial(run_damage, options, checksum=checksum))


def delivery(
    rounds: Annotated[int, typer.Option(min=1, help="Run this many rounds of an event.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Choose messages and events by this seed.")] = 1,
    seconds: Seconds = 0,
    event: Annotated[str, typer.Option(help="Cause only this event; `list` shows all.")] = "",
    output: Shown = Output.TABLE,
) -> None:
    """Kill services, fill volumes, lose masters and move clocks under delayed messages,
    transactions and shared groups.

    Real services deliver while one kind of event after the other befalls them, on stores of its
    own. Nothing may be early, lost, visible after a rollback, or handed out after its
    acknowledgement. Full volumes need root and loop devices, and are left out otherwise.
    """
    from stratamq_torture.processes.deliveries import run_deliveries
    from stratamq_torture.processes.delivery_events import EVENTS
    from stratamq_torture.trial import Options

    if not _listed("event", event, EVENTS, lambda one: one.__doc__, 10):
        options = Options(rounds, seed, seconds)
        _run(output, "rounds", rounds, partial(run_deliveries, options, event=event))


def disk(
    act: Annotated[str, typer.Option(help="Run only this act; `list` shows all acts.")] = "",
    flush: Annotated[str, typer.Option(help="Run only SYNC_FLUSH or only ASYNC_FLUSH.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Choose the messages by this seed.")] = 1,
    seconds: Seconds = 0,
    output: Shown = Output.TABLE,
) -> None:
    """Run the real services under load on a volume that gets full, turns read-only or fails.

    Each act has its own small ext4 volume on a loop device. On a full disk writes must be refused
    with the reason, and be accepted later without a restart. After a failed flush nothing more may
    be written; health, metrics and status must report why; reads continue, and a restart recovers.
    strace injects errors of single system calls. Needs root; skipped otherwise.
    """
    from stratamq_torture.disks.acts import ACTS
    from stratamq_torture.disks.trial import FLUSH_TYPES, run_disks
    from stratamq_torture.trial import Options

    if _listed("act", act, ACTS, lambda one: one.__doc__, 36):
        return
    if flush and flush not in FLUSH_TYPES:
        raise typer.BadParameter(f"{flush!r} is neither SYNC_FLUSH nor ASYNC_FLUSH")
    total = (1 if act else len(ACTS)) * (1 if flush else len(FLUSH_TYPES))
    options = Options(seed=seed, seconds=seconds)
    _run(output, "acts", total, partial(run_disks, options, act=act, flush=flush))


def hostile(
    messages: Annotated[
        int, typer.Option(min=1, help="Send this many messages, half to each port.")
    ] = 1_000_000,
    seed: Annotated[int, typer.Option(min=0, help="Choose the damage by this seed.")] = 1,
    seconds: Seconds = 0,
    output: Shown = Output.TABLE,
) -> None:
    """Send nearly valid bytes to the replication port and to append streams, next to a good client.

    At the end the same processes must run and must not have grown, and the log must hold every
    acknowledged message of the good client and of the torn batches that were accepted.
    """
    from stratamq_torture.processes.hostile import run_hostile
    from stratamq_torture.trial import Options

    _run(output, "messages", messages, partial(run_hostile, Options(messages, seed, seconds)))


def kill(
    rounds: Annotated[int, typer.Option(min=1, help="Run this many rounds of kills.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Choose messages and kills by this seed.")] = 1,
    seconds: Seconds = 0,
    point: Annotated[str, typer.Option(help="Kill only at this point; `list` shows all.")] = "",
    output: Shown = Output.TABLE,
) -> None:
    """Kill the real services under load, restart them, and check every guarantee.

    Producers and consumers use small files while services are killed with SIGKILL, paused with
    SIGSTOP and started in every order: at a segment roll, during a flush, a recovery, a rebuild, a
    stop. A round takes two to three seconds. Every third store uses ASYNC_FLUSH, which must also
    survive a killed process.
    """
    from stratamq_torture.processes.kill import POINTS, run_kills
    from stratamq_torture.trial import Options

    if not _listed("point", point, POINTS, lambda one: one.__doc__, 24):
        options = Options(rounds, seed, seconds)
        _run(output, "rounds", rounds, partial(run_kills, options, point=point))


def order(
    messages: Annotated[int, typer.Option(min=1, help="Append this many messages each way.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Choose the messages by this seed.")] = 1,
    async_flush: Annotated[
        bool, typer.Option("--async-flush", help="Show that losses are detected.")
    ] = False,
    output: Shown = Output.TABLE,
) -> None:
    """Trace the log service, and check that a flush precedes every acknowledgement.

    It traces unary and stream appends, one at a time and many in flight. Each response must be sent
    after a sync of its segment that began after the request had arrived. Needs strace; without it
    the trial is skipped with a message.
    """
    from stratamq_torture.processes.order import WAYS, run_order
    from stratamq_torture.trial import Options

    work = partial(run_order, Options(messages, seed), flush=ASYNC if async_flush else SYNC)
    _run(output, "messages", messages * len(WAYS), work)


def power(
    rounds: Annotated[int, typer.Option(min=1, help="Run this many rounds of power losses.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Choose messages and losses by this seed.")] = 1,
    seconds: Seconds = 0,
    async_flush: Annotated[
        bool,
        typer.Option(
            "--async-flush", help="Allow the loss of what is newer than the flush interval."
        ),
    ] = False,
    output: Shown = Output.TABLE,
) -> None:
    """Simulate power losses of the real services, restart them, and check every guarantee.

    The store is on a FUSE file system that loses what was not synced: all of it, a random part, or
    nothing. Under sync flush no acknowledged message may be missing. With --async-flush the loss
    must be the newest part, bounded by the flush interval, and be reported. Needs /dev/fuse, fuse3
    and mfusepy; without them the trial is skipped with a message.
    """
    from stratamq_torture.processes.power import run_power_losses
    from stratamq_torture.trial import Options

    flush = ASYNC if async_flush else SYNC
    work = partial(run_power_losses, Options(rounds, seed, seconds), flush=flush)
    _run(output, "rounds", rounds, work)


def replicas(
    rounds: Annotated[
        int, typer.Option(min=1, help="Run this many rounds: load, loss, promotion, return, check.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Choose messages and losses by this seed.")] = 1,
    seconds: Seconds = 0,
    loss: Annotated[str, typer.Option(help="Cause only this loss; `list` shows all.")] = "",
    async_master: Annotated[
        bool, typer.Option("--async-master", help="Show that losses are detected.")
    ] = False,
    output: Shown = Output.TABLE,
) -> None:
    """Lose the master of two real brokers under load, promote its slave, check every guarantee.

    Producers and consumers use a SYNC_MASTER and its slave, with all services, while the master is
    killed with SIGKILL, paused, or isolated from its slave. The slave is promoted and takes
    messages; the old master returns, steps down, moves unacknowledged records to stratamq/aside/,
    and follows. Then every acknowledged message must be on both brokers, once, byte for byte, in
    its place; queue offsets must have no gaps; what consumers saw must still be there; both logs
    must be equal. A round takes about ten seconds.
    """
    from stratamq.client import Role
    from stratamq_torture.replicas.trial import LOSSES, run_replicas
    from stratamq_torture.trial import Options

    if not _listed("loss", loss, LOSSES, lambda one: one.doc, 12):
        role = Role.ASYNC_MASTER if async_master else Role.SYNC_MASTER
        options = Options(rounds, seed, seconds)
        _run(output, "rounds", rounds, partial(run_replicas, options, loss=loss, role=role))


def resend(
    rounds: Annotated[int, typer.Option(min=1, help="Run this many kills and cuts.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Choose messages and faults by this seed.")] = 1,
    seconds: Seconds = 0,
    output: Shown = Output.TABLE,
) -> None:
    """Kill the log service and cut connections under load: every message is stored once.

    Producers of every kind resend unanswered messages through a proxy that resets their
    connections, sometimes after it has withheld responses. At the end the whole log is compared
    with the responses, message by message and sequence by sequence.
    """
    from stratamq_torture.processes.resend import run_resends
    from stratamq_torture.trial import Options

    _run(output, "rounds", rounds, partial(run_resends, Options(rounds, seed, seconds)))


# --- all of them ---


def everything(
    seconds: Annotated[float, typer.Option(min=1, help="Run for about this many seconds.")] = 300,
    first_seed: Annotated[
        int, typer.Option(min=0, help="Start at this seed; another number gives other trials.")
    ] = 0,
    output: Shown = Output.TABLE,
) -> None:
    """Run every trial for a share of the time, and print one table.

    Trials that cannot run on this machine (no root, no FUSE, no strace) are skipped with the
    reason. Rounds of `disk` and the last round of each trial are completed, so that the command
    takes a little longer.
    """
    # The engines warn about every fault that is planned for them.
    logging.disable()
    from stratamq_torture.trial import Options

    reports = []
    for name, share, trial, operations in _trials():
        options = Options(PLENTY, first_seed, seconds * share, _workers(0), operations)
        with counting(None, name) as progress:
            reports.append(trial(options, progress))
        if reports[-1].interrupted:
            break
    _finish(reports, output)


def _trials() -> "list[tuple[str, float, Trial, int]]":
    """With their parts of the whole time, and operations of a seed."""
    from stratamq_torture.damage.trial import run_damage
    from stratamq_torture.disks.trial import run_disks
    from stratamq_torture.processes.deliveries import run_deliveries
    from stratamq_torture.processes.hostile import run_hostile
    from stratamq_torture.processes.kill import run_kills
    from stratamq_torture.processes.order import run_order
    from stratamq_torture.processes.power import run_power_losses
    from stratamq_torture.processes.resend import run_resends
    from stratamq_torture.replicas.trial import run_replicas
    from stratamq_torture.simulated.trial import simulate
    from stratamq_torture.trial import Options, Progress, Report

    def few_seconds(options: Options, progress: Progress) -> Report:
        return run_order(Options(100, options.seed), progress)

    return [
        ("sim", 0.13, simulate, 150),
        ("tier", 0.06, _tiers().simulate, 60),
        ("agents", 0.04, _agents().simulate, 60),
        ("brokers", 0.09, _brokers().simulate, 100),
        ("delivery-sim", 0.04, _deliveries().simulate, 60),
        (JANITOR, 0.01, _janitors().simulate, 60),
        ("kill", 0.09, run_kills, 0),
        ("resend", 0.04, run_resends, 0),
        ("delivery", 0.04, run_deliveries, 0),
        ("hostile", 0.02, run_hostile, 0),
        ("replicas", 0.1, run_replicas, 0),
        ("power", 0.09, run_power_losses, 0),
        ("power async", 0.05, partial(run_power_losses, flush=ASYNC), 0),
        ("disk", 0.1, run_disks, 0),
        ("damage", 0.1, run_damage, 0),
        ("order", 0, few_seconds, 0),
    ]
