"""`stratamq torture replicas`: masters of two real brokers are lost under load."""

from dataclasses import dataclass

from stratamq.client import Role
from stratamq_torture.processes.harness import Rounds
from stratamq_torture.replicas.stage import Stage
from stratamq_torture.report import Report
from stratamq_torture.trial import Deck, Progress

ROUNDS_OF_A_PAIR = 5
DRAWN = ("killed", "killed", "paused", "cut-off")


@dataclass(frozen=True, slots=True)
class ReplicasOptions:
    """`rounds` or `seconds`, whichever ends first. `loss`: this one only. `role`: what masters are;
    ASYNC_MASTER loses what it had not shipped, which shows that the trial can see it."""

    rounds: int = 20
    seed: int = 1
    seconds: float | None = None
    loss: str = ""
    role: Role = Role.SYNC_MASTER


def run_replicas(options: ReplicasOptions, progress: Progress | None = None) -> Report:
    """The trial. The real processes decide what happens when: a seed brings the same losses after
    the same waits on the same messages, not the same microseconds."""
    flags = f" --loss {options.loss}" if options.loss else ""
    flags += " --async-master" if options.role is Role.ASYNC_MASTER else ""
    trial = Rounds("replicas", options, progress, "replicas", flags)
    deck = Deck(trial.chance, DRAWN)
    given_up = 0

    def play() -> None:
        """One pair of brokers."""
        nonlocal given_up
        stage = Stage(trial.next_seed(), options.role)

        def strike() -> None:
            loss = options.loss or deck.draw()
            trial.where = f"master {stage.master} {loss}"
            stage.lose_master(loss)
            trial.met[loss] += 1

        trial.play(stage, ROUNDS_OF_A_PAIR, strike)
        trial.report.promotions += stage.promotions
        given_up += stage.given_up

    report = trial.run(play)
    report.notes.append(
        f"{report.rounds} masters lost by {report.seeds} pairs: {trial.summary}; {given_up} had "
        "bytes that no producer was promised, gave them up and keep them aside"
    )
    return report
