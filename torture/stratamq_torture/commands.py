"""`stratamq torture`: each command one trial of the promise that nothing acknowledged is lost.

What works is imported when it is called: every other command of `stratamq` imports this module.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from stratamq.cli.dump_output import Output
from stratamq.cli.options import BUILDERS
from stratamq.rpc.rooms import JANITOR

if TYPE_CHECKING:
    from stratamq_torture.trial import Options, Progress, Report, SeedsTrial

    Trial = Callable[[Options, Progress], Report]

PLENTY = 1_000_000
"""More rounds than any time is enough for: the seconds end a trial."""
SYNC, ASYNC = "SYNC_FLUSH", "ASYNC_FLUSH"

Seeds = Annotated[int, typer.Option(min=1, help="how many random workloads to run")]
FirstSeed = Annotated[int, typer.Option(min=0, help="the first of them")]
Jobs = Annotated[int, typer.Option(min=0, help="worker processes; 0: one for each processor")]
Operations = Annotated[int, typer.Option(min=1, help="operations of each workload")]
SecondsOfSeeds = Annotated[
    float, typer.Option(min=0, help="begin no seed after that; 0: run them all")
]
SecondsOfRounds = Annotated[
    float, typer.Option(min=0, help="begin no round after that; 0: all rounds")
]
Without = Annotated[
    list[str] | None,
    typer.Option(help="switch this rule off, and see what it is for; may be repeated"),
]
Trace = Annotated[bool, typer.Option("--trace", help="show each operation of the seeds that fail")]
Shown = Annotated[
    Output, typer.Option("--output", "-o", help="a table, or one JSON object as the last line")
]
Named = TypeVar("Named")


def register(app: typer.Typer) -> None:
    """Called by the command line through the entry-point group `stratamq.commands`."""
    torture = typer.Typer(
        name="torture",
        help="Nothing acknowledged is ever lost: crashes, kills, power losses, damage, full disks.",
        no_args_is_help=True,
    )
    torture.command("all")(everything)
    torture.command("agents", help=AGENTS)(_of_seeds(_agents))
    for command in (brokers, damage, disk, hostile):
        torture.command()(command)
    torture.command(JANITOR, help=CLOCKS)(_of_seeds(_janitors))
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


def _workers(jobs: int) -> int:
    return jobs or os.cpu_count() or 1


def _known(names: Iterable[str] | None, rules: Mapping[str, str]) -> tuple[str, ...]:
    """The rules to go without; wrong usage for a name that is none."""
    unknown = [name for name in names or () if name not in rules]
    if unknown:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: the rules are {', '.join(rules)}", param_hint="--without"
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

AGENTS = """Pause, kill and cut off agents and brokers, lose, delay and double the store's answers,
and check that at most one master answers at any moment, and that one leads in the end.

The agent's own rounds and the log's own lease run in a simulated time, with clocks that differ."""
CLOCKS = """Put the wall clock forward and back, between looks and within them, and check that
nothing expires by a time that the clock has shown for less than the grace.

The janitor's own looks and the log's own engine run in a simulated time."""
TIERS = """Crash, pause and fence the writers of a tier, promote brokers with other histories, lose
answers and tear writes, and check that the tier equals the log.

The tier service's own steps run over a simulated storage, one event after the other. In the end
every message that belongs in the tier is there once, byte for byte, and found by its key."""


def _agents() -> "SeedsTrial":
    from stratamq_torture.agents.simulation import TRIAL

    return TRIAL


def _brokers() -> "SeedsTrial":
    from stratamq_torture.brokers.simulation import TRIAL

    return TRIAL


def _janitors() -> "SeedsTrial":
    from stratamq_torture.janitor import TRIAL

    return TRIAL


def _tiers() -> "SeedsTrial":
    from stratamq_torture.tier.simulation import TRIAL

    return TRIAL


def _of_seeds(trial: "Callable[[], SeedsTrial]") -> Callable[..., None]:
    def command(
        seeds: Seeds = 100,
        first_seed: FirstSeed = 0,
        jobs: Jobs = 0,
        operations: Operations = 60,
        seconds: SecondsOfSeeds = 0,
        without: Without = None,
        trace: Trace = False,
        output: Shown = Output.TABLE,
    ) -> None:
        _seeds(trial(), seeds, first_seed, jobs, operations, seconds, without, trace, output)

    return command


def brokers(
    seeds: Seeds = 100,
    first_seed: FirstSeed = 0,
    jobs: Jobs = 0,
    operations: Operations = 100,
    seconds: SecondsOfSeeds = 0,
    trace: Trace = False,
    output: Shown = Output.TABLE,
) -> None:
    """Crash, cut off, replace and promote two or three brokers of one name, and check that what was
    promised is on the broker that serves.

    Their logs and both machines of replication run in one process, on disks, power supplies and a
    network that fail by chance. In the end all logs are equal, byte for byte.
    """
    _seeds(_brokers(), seeds, first_seed, jobs, operations, seconds, None, trace, output)


def _seeds(
    trial: "SeedsTrial",
    seeds: int,
    first_seed: int,
    jobs: int,
    operations: int,
    seconds: float,
    without: list[str] | None,
    trace: bool,
    output: Output,
) -> None:
    # What is simulated warns about every fault that is planned for it.
    logging.disable()
    from stratamq_torture.trial import Options

    rules = _known(without, trial.rules)
    options = Options(seeds, first_seed, seconds, _workers(jobs), operations, trace, rules)
    _run(output, "seeds", seeds, partial(trial.simulate, options))


def sim(
    seeds: Seeds = 200,
    first_seed: FirstSeed = 0,
    jobs: Jobs = 0,
    operations: Operations = 150,
    seconds: SecondsOfSeeds = 0,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="leave out of a failing seed what it does not need")
    ] = False,
    keep: Annotated[
        str, typer.Option(help="run only these operations of the first seed: 1,2,17")
    ] = "",
    trace: Trace = False,
    enumerate_: Annotated[
        bool,
        typer.Option("--enumerate", help="instead of seeds: every workload of a few operations"),
    ] = False,
    depth: Annotated[
        int, typer.Option(min=1, max=3, help="with --enumerate: operations of a workload, at most")
    ] = 3,
    crashed: Annotated[
        int,
        typer.Option(
            min=0, max=3, help="with --enumerate: up to so many, each crash point of the last one"
        ),
    ] = 2,
    case: Annotated[str, typer.Option(help="with --enumerate: only this workload")] = "",
    output: Shown = Output.TABLE,
) -> None:
    """Crash the whole broker on a simulated disk, and check every promise after each start.

    Commit log, dispatcher and index run in one process on a disk, a kernel and a power supply that
    fail by chance. A seed decides everything: it fails again wherever it is run.
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
    short: Annotated[bool, typer.Option("--short", help="only what takes seconds")] = False,
    jobs: Jobs = 0,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no scope after that; 0: search them all")
    ] = 0,
    output: Shown = Output.TABLE,
) -> None:
    """Search every state of two and three members that append, acknowledge, crash, lose and restore
    disks, are promoted and removed, and check that no acknowledged message is ever missing.

    It is the protocol of docs/decisions/009, and none of the production code. A rule that is
    switched off shows the shortest way to a loss.
    """
    from stratamq_torture.protocol_model.state import RULES
    from stratamq_torture.protocol_model.trial import LONG, SHORT, check
    from stratamq_torture.trial import Options

    scopes = SHORT if short else LONG
    options = Options(seconds=seconds, jobs=_workers(jobs), without=_known(without, RULES))
    _run(output, "scopes", len(scopes), partial(check, options, scopes=scopes))


# --- the real engines and services ---


def damage(
    rounds: Annotated[int, typer.Option(min=1, help="how many files to damage")] = 400,
    first_seed: Annotated[int, typer.Option(min=0, help="the seed of the first round")] = 0,
    jobs: Jobs = 0,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no rounds after that; 0: all of them")
    ] = 0,
    checksum: Annotated[
        bool, typer.Option(help="whether records carry a checksum of their own, as by default")
    ] = True,
    trace: Annotated[bool, typer.Option("--trace", help="print every round")] = False,
    output: Shown = Output.TABLE,
) -> None:
    """Damage one file of a stopped store, start the engines on it twice, and read everything.

    A seed chooses the family of files (segments, queue and index files, everything beside them),
    the kind of damage (a flipped bit, zeros, garbage, another length, another file's content, a
    directory, a link, a FIFO, …), the file and the place. A service starts, or refuses in a
    sentence; whatever is served is byte for byte what was written; what is untouched is served;
    what was cut is in stratamq/aside/; queues and index are whole again in the end.
    """
    from stratamq_torture.damage.trial import run_damage
    from stratamq_torture.trial import Options

    options = Options(rounds, first_seed, seconds, _workers(jobs), trace=trace)
    _run(output, "rounds", rounds, partial(run_damage, options, checksum=checksum))


def disk(
    act: Annotated[str, typer.Option(help="only this act; `list` shows them all")] = "",
    flush: Annotated[str, typer.Option(help="only SYNC_FLUSH or only ASYNC_FLUSH")] = "",
    seed: Annotated[int, typer.Option(min=0, help="which messages")] = 1,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no act after that; 0: all of them")
    ] = 0,
    output: Shown = Output.TABLE,
) -> None:
    """Run the real services on a volume that gets full, turns read-only or fails, under load.

    Each act has a small ext4 volume of its own on a loop device. Full is a level: writes are
    refused with the reason, and taken again without a restart. A failed flush is the end: nothing
    more is written, health, metrics and status report why, reads continue, and a restart recovers.
    Errors of single system calls are injected by strace. Needs root; skipped elsewhere.
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
    messages: Annotated[int, typer.Option(min=1, help="half to each port")] = 1_000_000,
    seed: Annotated[int, typer.Option(min=0, help="what is torn, and how")] = 1,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin nothing after that; 0: all messages")
    ] = 0,
    output: Shown = Output.TABLE,
) -> None:
    """Send nearly valid bytes to the replication port and to append streams: others are not harmed.

    In the end the services are the processes that they were, have not grown, and the log holds what
    was acknowledged, of an honest client beside them and of the torn batches that were taken.
    """
    from stratamq_torture.processes.hostile import run_hostile
    from stratamq_torture.trial import Options

    _run(output, "messages", messages, partial(run_hostile, Options(messages, seed, seconds)))


def kill(
    rounds: Annotated[int, typer.Option(min=1, help="rounds of load, kill, restart, check")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="which messages, and which kills when")] = 1,
    seconds: SecondsOfRounds = 0,
    point: Annotated[str, typer.Option(help="only this point; `list` shows them all")] = "",
    output: Shown = Output.TABLE,
) -> None:
    """Kill the real services under load, start them again, and check every promise.

    Producers and consumers run over small files while services are killed with SIGKILL, paused
    with SIGSTOP and started in every order: at a segment roll, during a flush, a recovery, a
    rebuild, a stop. A round takes two to three seconds. Every third store runs under ASYNC_FLUSH,
    which a killed process survives as well.
    """
    from stratamq_torture.processes.kill import POINTS, run_kills
    from stratamq_torture.trial import Options

    if not _listed("point", point, POINTS, lambda one: one.__doc__, 24):
        options = Options(rounds, seed, seconds)
        _run(output, "rounds", rounds, partial(run_kills, options, point=point))


def order(
    messages: Annotated[
        int, typer.Option(min=1, help="messages of each of the four ways to append")
    ] = 200,
    seed: Annotated[int, typer.Option(min=0, help="which messages")] = 1,
    async_flush: Annotated[
        bool, typer.Option("--async-flush", help="must fail: shows that the trial can see it")
    ] = False,
    output: Shown = Output.TABLE,
) -> None:
    """Trace the log service, and hold every acknowledgement against the flush that covers it.

    Unary and stream appends, one at a time and many in flight. Each answer on the wire must leave
    after a sync of its segment that began when its request was there. Needs strace; does nothing,
    and reports that, where it is missing.
    """
    from stratamq_torture.processes.order import WAYS, run_order
    from stratamq_torture.trial import Options

    work = partial(run_order, Options(messages, seed), flush=ASYNC if async_flush else SYNC)
    _run(output, "messages", messages * len(WAYS), work)


def power(
    rounds: Annotated[int, typer.Option(min=1, help="rounds of load, power loss, check")] = 20,
    seed: Annotated[
        int, typer.Option(min=0, help="which messages, when the power goes, what the disk keeps")
    ] = 1,
    seconds: SecondsOfRounds = 0,
    async_flush: Annotated[
        bool, typer.Option("--async-flush", help="lose only what is newer than the flush interval")
    ] = False,
    output: Shown = Output.TABLE,
) -> None:
    """Take the power away from the real services, start them again, and check every promise.

    The store is on a FUSE file system that forgets what was not synced: nothing, everything or a
    random part of it survives. Under sync flush nothing acknowledged may be missing. With
    --async-flush the loss must be the newest part, bounded by the flush interval, and is reported.
    Needs /dev/fuse, fuse3 and mfusepy; reports that and does nothing where one is missing.
    """
    from stratamq_torture.processes.power import run_power_losses
    from stratamq_torture.trial import Options

    flush = ASYNC if async_flush else SYNC
    work = partial(run_power_losses, Options(rounds, seed, seconds), flush=flush)
    _run(output, "rounds", rounds, work)


def replicas(
    rounds: Annotated[
        int, typer.Option(min=1, help="rounds of load, loss, promotion, return, check")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="which messages, and which losses when")] = 1,
    seconds: SecondsOfRounds = 0,
    loss: Annotated[str, typer.Option(help="only this loss; `list` shows them all")] = "",
    async_master: Annotated[
        bool, typer.Option("--async-master", help="must fail: shows that the trial can see it")
    ] = False,
    output: Shown = Output.TABLE,
) -> None:
    """Lose the master of two real brokers under load, promote its slave, and check every promise.

    A SYNC_MASTER and its slave, all their services; producers and consumers run while the master is
    killed with SIGKILL, paused, or cut off from its slave. The slave is promoted and takes
    messages; the old master comes back, steps down, keeps aside what was never promised, and
    follows. Every acknowledged message is there then, once, byte for byte, at its place, on both;
    queue offsets are dense; what consumers saw is still there; both logs are the same bytes. A
    round takes some ten seconds.
    """
    from stratamq.client import Role
    from stratamq_torture.replicas.trial import LOSSES, run_replicas
    from stratamq_torture.trial import Options

    if not _listed("loss", loss, LOSSES, lambda one: one.doc, 12):
        role = Role.ASYNC_MASTER if async_master else Role.SYNC_MASTER
        options = Options(rounds, seed, seconds)
        _run(output, "rounds", rounds, partial(run_replicas, options, loss=loss, role=role))


def resend(
    rounds: Annotated[int, typer.Option(min=1, help="kills and cuts")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="which messages, and which act when")] = 1,
    seconds: SecondsOfRounds = 0,
    output: Shown = Output.TABLE,
) -> None:
    """Kill the log service and cut connections under load: every message is stored once.

    Producers of every kind send again what was not answered, through a proxy that resets their
    connections, also after it has withheld the answers. At the end the whole log is compared with
    their answers, message by message and sequence by sequence.
    """
    from stratamq_torture.processes.resend import run_resends
    from stratamq_torture.trial import Options

    _run(output, "rounds", rounds, partial(run_resends, Options(rounds, seed, seconds)))


# --- all of them ---


def everything(
    seconds: Annotated[float, typer.Option(min=1, help="about so long altogether")] = 300,
    first_seed: Annotated[
        int, typer.Option(min=0, help="where seeds begin: another number, other trials")
    ] = 0,
    output: Shown = Output.TABLE,
) -> None:
    """Every trial, each for its part of the time, and one table of all.

    What cannot run here (no root, no FUSE, no strace) is skipped with the reason. Rounds of `disk`
    and the last one of each trial are brought to their end, so that it takes a little longer.
    """
    # The engines warn about every fault that is planned for them.
    logging.disable()
    from stratamq_torture.trial import Options

    reports = []
    for name, share, trial, operations in _trials():
        options = Options(PLENTY, first_seed, seconds * share, _workers(0), operations)
        with counting(None, name) as progress:
            reports.append(trial(options, progress))
    _finish(reports, output)


def _trials() -> "list[tuple[str, float, Trial, int]]":
    """With their parts of the whole time, and operations of a seed."""
    from stratamq_torture.damage.trial import run_damage
    from stratamq_torture.disks.trial import run_disks
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
        ("sim", 0.17, simulate, 150),
        ("tier", 0.06, _tiers().simulate, 60),
        ("agents", 0.04, _agents().simulate, 60),
        ("brokers", 0.09, _brokers().simulate, 100),
        (JANITOR, 0.01, _janitors().simulate, 60),
        ("kill", 0.11, run_kills, 0),
        ("resend", 0.04, run_resends, 0),
        ("hostile", 0.02, run_hostile, 0),
        ("replicas", 0.1, run_replicas, 0),
        ("power", 0.11, run_power_losses, 0),
        ("power async", 0.05, partial(run_power_losses, flush=ASYNC), 0),
        ("disk", 0.1, run_disks, 0),
        ("damage", 0.1, run_damage, 0),
        ("order", 0, few_seconds, 0),
    ]
