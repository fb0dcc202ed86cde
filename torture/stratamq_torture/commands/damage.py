"""`stratamq torture damage`: files of a stopped store damaged in every way, then served."""

import os
from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def damage(
    rounds: Annotated[int, typer.Option(min=1, help="how many files to damage")] = 400,
    first_seed: Annotated[int, typer.Option(min=0, help="the seed of the first round")] = 0,
    jobs: Annotated[
        int, typer.Option(min=0, help="worker processes; 0: one for each processor")
    ] = 0,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no rounds after that; 0: all of them")
    ] = 0,
    checksum: Annotated[
        bool, typer.Option(help="whether records carry a checksum of their own, as by default")
    ] = True,
    trace: Annotated[bool, typer.Option("--trace", help="print every round")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Damage one file of a stopped store, start the engines on it twice, and read everything.

    A seed chooses the family of files (segments, queue and index files, everything beside them),
    the kind of damage (a flipped bit, zeros, garbage, another length, another file's content, a
    directory, a link, a FIFO, …), the file and the place. A service starts, or refuses in a
    sentence; whatever is served is byte for byte what was written; what is untouched is served;
    what was cut is in stratamq/aside/; queues and index are whole again in the end.
    """
    from stratamq_torture.damage.trial import DamageOptions, run_damage

    options = DamageOptions(
        rounds, first_seed, jobs or os.cpu_count() or 1, seconds or None, checksum, trace
    )
    with counting(rounds, "rounds") as progress:
        report = run_damage(options, progress)
    finish([report], output)
