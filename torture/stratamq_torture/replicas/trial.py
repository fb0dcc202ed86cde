"""`stratamq torture replicas`: masters of two real brokers are lost under load, each by a loss with
a name, and come back."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from stratamq.client import Role
from stratamq_torture.processes.checker import Checker, Findings
from stratamq_torture.processes.harness import INDEX_ITEMS, INDEX_SLOTS, SMALL, Harness, Rounds
from stratamq_torture.processes.ledger import TOPICS, LogImage, check_files
from stratamq_torture.processes.workload import STREAM, UNARY, Workload, make_topics
from stratamq_torture.replicas.brokers import NAMES, Brokers
from stratamq_torture.trial import Deck, Options, Progress, Report

ROUNDS_OF_A_PAIR = 5
DRAWN = ("killed", "killed", "paused", "cut-off")


@dataclass(frozen=True, slots=True)
class Loss:
    """`strike` and `undo` receive both brokers and the master's name; `undo` comes after the
    promotion of the other. `doc`: for people."""

    doc: str
    strike: Callable[[Brokers, str], object]
    undo: Callable[[Brokers, str], object]


LOSSES = {
    "killed": Loss(
        "SIGKILL to all of its processes; started again later",
        lambda brokers, name: brokers[name].kill(),
        lambda brokers, name: brokers[name].start(),
    ),
    "paused": Loss(
        "SIGSTOP to all of its processes; they continue later",
        lambda brokers, name: brokers[name].services.pause_all(),
        lambda brokers, name: brokers[name].services.resume_all(),
    ),
    "cut-off": Loss(
        "no connection between the two, while its producers and consumers still reach it",
        lambda brokers, _: [brokers[name].unreachable() for name in NAMES],
        lambda brokers, _: [brokers[name].reachable() for name in NAMES],
    ),
}


def run_replicas(
    options: Options, progress: Progress = None, loss: str = "", role: Role = Role.SYNC_MASTER
) -> Report:
    """The trial. The real processes decide what happens when: a seed brings the same losses after
    the same waits on the same messages, not the same microseconds."""
    flags = f" --loss {loss}" if loss else ""
    flags += " --async-master" if role is Role.ASYNC_MASTER else ""
    trial = Rounds("replicas", options, progress, flags)
    deck = Deck(trial.chance, DRAWN)
    given_up = 0

    def play() -> None:
        """One pair of brokers."""
        nonlocal given_up
        stage = Stage(trial.next_seed(), role)

        def strike() -> None:
            drawn = loss or deck.draw()
            trial.where = f"master {stage.master} {drawn}"
            stage.lose_master(drawn)
            trial.met[drawn] += 1

        trial.play(stage, ROUNDS_OF_A_PAIR, strike)
        trial.report.promotions += stage.promotions
        given_up += stage.given_up

    report = trial.run(play)
    report.notes.append(
        f"{report.rounds} masters lost by {report.seeds} pairs: {trial.summary}; {given_up} had "
        "bytes that no producer was promised, gave them up and keep them aside"
    )
    return report


KINDS = (STREAM, UNARY)
"""Neither sends twice: a message is there once or not at all, whichever broker the master was."""
SETTINGS = (
    *SMALL,
    # What consumers were shown must be on the broker that is promoted.
    "commitlog.slave_timeout_ms=500",
)
LONGEST_MOMENT_S = 0.3
LONGEST_ABSENCE_S = 1.5
MIN_MESSAGES, MAX_MESSAGES = 20, 150
MESSAGES_AFTER = 50


class Stage(Harness):
    """Two brokers. `workload` is upon the present master, from the first round on."""

    progress_s = 60.0

    def __init__(self, seed: int, role: Role = Role.SYNC_MASTER) -> None:
        super().__init__(seed, "replicas")
        self.brokers = Brokers(self.directory, SETTINGS, role)
        self.master = NAMES[0]
        self.promotions = 0
        self.given_up = 0
        """Old masters that had unacknowledged bytes, now in stratamq/aside/."""
        self._workloads = 0
        self._loads = ExitStack()
        self._image: LogImage | None = None
        """What the master's log held at the last check."""

    def _start(self, stack: ExitStack) -> None:
        stack.enter_context(self.brokers)
        self.brokers.start()
        make_topics(self.brokers[self.master].client)
        self._topics_are_on_both()
        stack.enter_context(self._loads)
        self.workload = self._new_load()

    @property
    def kills(self) -> int:
        return self.brokers.kills

    # --- what rounds are made of ---

    def lose_master(self, how: str) -> None:
        """Load, the loss at some moment, the promotion; the new master is under load when the old
        one comes back, steps down and follows. StrataError: the promotion was refused."""
        brokers, chance, old = self.brokers, self.chance, self.master
        new = brokers.other(old).name
        kept = brokers[old].aside()
        self.grow(chance.randint(MIN_MESSAGES, MAX_MESSAGES))
        self.wait(LONGEST_MOMENT_S)
        LOSSES[how].strike(brokers, old)
        term = brokers.promote(new).term
        self.promotions += 1
        self.master, left = new, self.workload
        self.workload = self._new_load()
        self.workload.resume()
        self.wait(LONGEST_ABSENCE_S)
        LOSSES[how].undo(brokers, old)
        left.close()
        brokers.serves(new)
        followed = brokers[old].client.log_state().term
        if followed != term:
            self.ledger.fault(f"{old} follows in term {followed}, the promotion's was {term}")
        self.given_up += brokers[old].aside() > kept
        self.grow(MESSAGES_AFTER)

    def check(self) -> Findings:
        """The load at rest; every promise against the master from its first byte, against its
        slave likewise, and the two logs against each other."""
        self.workload.pause()
        self.brokers.ends_alike()
        findings, self._image = self._hold(self.master)
        slave = self.brokers.other(self.master).name
        of_slave, _ = self._hold(slave)
        findings.faults += [f"on the slave: {line}" for line in of_slave.sentences]
        difference = self.brokers.difference()
        if difference:
            findings.faults.append(difference)
        return findings

    def finish(self) -> Findings:
        """The last check of this pair: consumers at the end, a clean stop of both, their files."""
        findings, image = self.check(), self._image
        if image is None:
            return findings

        self._consumers_end(image, findings)
        self.workload.close()
        for name in (self.master, self.brokers.other(self.master).name):
            self.brokers[name].services.stop()
            faults = check_files(self.brokers[name].root, image, INDEX_SLOTS, INDEX_ITEMS)
            findings.faults += [f"the files of {name}: {line}" for line in faults]
        difference = self.brokers.difference()
        if difference:
            findings.faults.append(f"stopped: {difference}")
        return findings

    # --- details ---

    def _hold(self, name: str) -> tuple[Findings, LogImage | None]:
        broker = self.brokers[name]
        checker = Checker(broker.root, broker.client, self.messages, self.ledger)
        return checker.check(self.chance), checker.image

    def _new_load(self) -> Workload:
        first = self._workloads * len(KINDS)
        self._workloads += 1
        root = self.brokers[self.master].root
        load = Workload(root, self.messages, self.ledger, kinds=KINDS, first_producer=first)
        return self._loads.enter_context(load)

    def _topics_are_on_both(self) -> None:
        slave = self.brokers.other(self.master)

        def there() -> bool:
            return slave.log() is not None and set(TOPICS) <= {
                topic.name for topic in slave.client.topics()
            }

        self.brokers.wait(there, "the slave has the topics")
