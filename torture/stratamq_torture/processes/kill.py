"""`stratamq torture kill`: rounds of load, a kill at a named point, a restart, and the check."""

from dataclasses import dataclass

from stratamq_torture.processes.harness import Rounds
from stratamq_torture.processes.kill_points import POINTS
from stratamq_torture.processes.stage import Stage
from stratamq_torture.report import Report
from stratamq_torture.trial import Deck, Progress

ROUNDS_OF_A_STORE = 10
FLUSH_TYPES = ("SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH")
"""A killed process loses nothing under either; every third store flushes asynchronously."""
MESSAGES_BEFORE, MESSAGES_AFTER = 100, 50


@dataclass(frozen=True, slots=True)
class KillOptions:
    """`rounds` or `seconds`, whichever ends first. `point`: this one only."""

    rounds: int = 50
    seed: int = 1
    seconds: float | None = None
    point: str = ""


def run_kills(options: KillOptions, progress: Progress | None = None) -> Report:
    """The trial. The real processes decide what happens when: a seed brings the same acts on the
    same messages, not the same microseconds."""
    trial = Rounds(
        "kill", options, progress, "kill", f" --point {options.point}" if options.point else ""
    )
    deck = Deck(trial.chance, sorted(POINTS))

    def play() -> None:
        """One store."""
        flush = FLUSH_TYPES[trial.report.seeds % len(FLUSH_TYPES)]
        stage = Stage(trial.next_seed(), (f"commitlog.flush_disk_type={flush}",))

        def strike() -> None:
            point = options.point or deck.draw()
            trial.where = f"{point}, {flush}"
            stage.grow(MESSAGES_BEFORE)
            POINTS[point](stage)
            stage.restore()
            stage.grow(MESSAGES_AFTER)
            trial.met[point] += 1

        trial.play(stage, ROUNDS_OF_A_STORE, strike)

    report = trial.run(play)
    report.notes.append(f"{report.rounds} rounds on {report.seeds} stores: {trial.summary}")
    return report
