"""`stratamq torture all`: every trial, each for its part of the time."""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.rpc.rooms import JANITOR
from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting

if TYPE_CHECKING:
    from stratamq_torture.report import Report

PLENTY = 1_000_000
"""More rounds than any time is enough for: the seconds end a trial."""
SHARES = {
    "sim": 0.17,
    "tier": 0.06,
    "agents": 0.04,
    "brokers": 0.09,
    JANITOR: 0.01,
    "kill": 0.11,
    "resend": 0.04,
    "hostile": 0.02,
    "replicas": 0.1,
    "power": 0.11,
    "power async": 0.05,
    "disk": 0.1,
    "damage": 0.1,
}
"""Of the whole time; the order of flushes takes what it takes, a few seconds."""


def everything(
    seconds: Annotated[float, typer.Option(min=1, help="about so long altogether")] = 300,
    first_seed: Annotated[
        int, typer.Option(min=0, help="where seeds begin: another number, other trials")
    ] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Every trial, each for its part of the time, and one table of all.

    What cannot run here (no root, no FUSE, no strace) is skipped with the reason. Rounds of `disk`
    and the last one of each trial are brought to their end, so that it takes a little longer.
    """
    # The engines warn about every fault that is planned for them.
    logging.disable()
    trials = _trials(seconds, first_seed)
    reports = []
    for name, trial in trials.items():
        with counting(None, name) as progress:
            reports.append(trial(progress))
    finish(reports, output)


Progress = Callable[[int, int], None] | None


def _trials(seconds: float, first_seed: int) -> "dict[str, Callable[[Progress], Report]]":
    from stratamq_torture.agents.trial import TRIAL as AGENTS
    from stratamq_torture.brokers.trial import TRIAL as BROKERS
    from stratamq_torture.damage.trial import DamageOptions, run_damage
    from stratamq_torture.disks.trial import DiskOptions, run_disks
    from stratamq_torture.janitor.trial import TRIAL as JANITORS
    from stratamq_torture.processes.hostile import HostileOptions, run_hostile
    from stratamq_torture.processes.kill import KillOptions, run_kills
    from stratamq_torture.processes.order import OrderOptions, run_order
    from stratamq_torture.processes.power import PowerOptions, run_power_losses
    from stratamq_torture.processes.resend import ResendOptions, run_resends
    from stratamq_torture.replicas.trial import ReplicasOptions, run_replicas
    from stratamq_torture.seeds import SeedsOptions
    from stratamq_torture.simulated.trial import SimulationOptions, simulate
    from stratamq_torture.tier.trial import TRIAL as TIER

    jobs = os.cpu_count() or 1
    share = {name: seconds * part for name, part in SHARES.items()}
    simulation = SimulationOptions(
        seeds=PLENTY, first_seed=first_seed, jobs=jobs, seconds=share["sim"]
    )
    seeds = SeedsOptions(PLENTY, first_seed, jobs)
    agents = replace(seeds, seconds=share["agents"])
    brokers = replace(seeds, seconds=share["brokers"], operations=100)
    janitors = replace(seeds, seconds=share[JANITOR])
    tiers = replace(seeds, seconds=share["tier"])
    kills = KillOptions(PLENTY, first_seed, share["kill"])
    resends = ResendOptions(PLENTY, first_seed, share["resend"])
    hostile = HostileOptions(PLENTY, first_seed, share["hostile"])
    replicas = ReplicasOptions(PLENTY, first_seed, share["replicas"])
    power = PowerOptions(PLENTY, first_seed, "SYNC_FLUSH", share["power"])
    power_async = PowerOptions(PLENTY, first_seed, "ASYNC_FLUSH", share["power async"])
    disks = DiskOptions(seed=first_seed, seconds=share["disk"])
    damage = DamageOptions(PLENTY, first_seed, jobs, share["damage"])
    return {
        "sim": lambda progress: simulate(simulation, progress),
        "tier": lambda progress: TIER.simulate(tiers, progress),
        "agents": lambda progress: AGENTS.simulate(agents, progress),
        "brokers": lambda progress: BROKERS.simulate(brokers, progress),
        JANITOR: lambda progress: JANITORS.simulate(janitors, progress),
        "kill": lambda progress: run_kills(kills, progress),
        "resend": lambda progress: run_resends(resends, progress),
        "hostile": lambda progress: run_hostile(hostile, progress),
        "replicas": lambda progress: run_replicas(replicas, progress),
        "power": lambda progress: run_power_losses(power, progress),
        "power async": lambda progress: run_power_losses(power_async, progress),
        "disk": lambda progress: run_disks(disks, progress),
        "damage": lambda progress: run_damage(damage, progress),
        "order": lambda progress: run_order(OrderOptions(seed=first_seed), progress),
    }
