"""Two brokers, the load on whoever is master, and the checks: where the rounds of a trial play."""

import random
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from stratamq.client import Role
from stratamq_torture.processes.checker import Checker, Findings
from stratamq_torture.processes.ledger import Ledger
from stratamq_torture.processes.log_image import LogImage
from stratamq_torture.processes.messages import TOPICS, Messages
from stratamq_torture.processes.services import until
from stratamq_torture.processes.stage import INDEX_ITEMS, INDEX_SLOTS, SMALL
from stratamq_torture.processes.stopped_store import check_files
from stratamq_torture.processes.workload import STREAM, UNARY, Workload, make_topics, wait_for
from stratamq_torture.replicas.brokers import NAMES, Brokers
from stratamq_torture.replicas.losses import LOSSES

KINDS = (STREAM, UNARY)
"""Neither sends twice: a message is there once or not at all, whoever the master was."""
SETTINGS = (
    *SMALL,
    # What consumers were shown must be on whoever is promoted.
    "commitlog.slave_timeout_ms=500",
)
LONGEST_MOMENT_S = 0.3
LONGEST_ABSENCE_S = 1.5
FEWEST_MESSAGES, MOST_MESSAGES = 20, 150
MESSAGES_AFTER = 50
PROGRESS_S = 60.0


class Stage:
    """`with Stage(…) as stage` starts two brokers on empty directories, under load.

    `directory` is made, and removed at the end unless `keep` was set.
    """

    def __init__(self, seed: int, role: Role = Role.SYNC_MASTER) -> None:
        self.keep = True  # until it has started: what the services wrote says why they did not
        self.directory = Path(tempfile.mkdtemp(prefix="stratamq-torture-"))
        self.chance = random.Random(f"replicas {seed}")
        self.messages = Messages(seed)
        self.ledger = Ledger()
        self.brokers = Brokers(self.directory, SETTINGS, role)
        self.master = NAMES[0]
        self.promotions = 0
        self.given_up = 0
        """Old masters that had bytes nobody was promised, and keep them aside."""
        self._workloads = 0
        self._loads = ExitStack()
        self._stack = ExitStack()
        self._load: Workload

    def __enter__(self) -> "Stage":
        with ExitStack() as stack:
            stack.callback(self._remove)
            stack.enter_context(self.brokers)
            self.brokers.start()
            make_topics(self.brokers[self.master].client)
            self._topics_are_on_both()
            stack.enter_context(self._loads)
            self._load = self._new_load()
            self._stack = stack.pop_all()
        self.keep = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.keep |= error is not None
        self._stack.close()

    # --- what rounds are made of ---

    def lose_master(self, how: str) -> None:
        """Load, the loss at some moment, the promotion; the new master is under load when the old
        one comes back, steps down and follows. StrataError: the promotion was refused."""
        brokers, chance, old = self.brokers, self.chance, self.master
        new = brokers.other(old).name
        kept = brokers[old].aside()
        self.grow(chance.randint(FEWEST_MESSAGES, MOST_MESSAGES))
        self._wait(LONGEST_MOMENT_S)
        LOSSES[how].strike(brokers, old)
        term = brokers.promote(new).term
        self.promotions += 1
        self.master, left = new, self._load
        self._load = self._new_load()
        self._load.resume()
        self._wait(LONGEST_ABSENCE_S)
        LOSSES[how].undo(brokers, old)
        left.close()
        brokers.serves(new)
        followed = brokers[old].client.log_state().term
        if followed != term:
            self.ledger.fault(f"{old} follows in term {followed}, the promotion's was {term}")
        self.given_up += brokers[old].aside() > kept
        self.grow(MESSAGES_AFTER)

    def grow(self, messages: int) -> None:
        """The load runs until so many more are acknowledged; a fault when it cannot."""
        self._load.resume()
        if not wait_for(self._load, messages, PROGRESS_S):
            self.ledger.fault(f"no {messages} messages were acknowledged within {PROGRESS_S} s")

    def check(self) -> tuple[Findings, LogImage | None]:
        """The load at rest; every promise against the master from its first byte, against its
        slave likewise, and the two logs against each other. What the master's log held."""
        self._load.pause()
        self.brokers.ends_alike()
        findings, image = self._hold(self.master)
        slave = self.brokers.other(self.master).name
        of_slave, _ = self._hold(slave)
        findings.faults += [f"on the slave: {line}" for line in of_slave.sentences]
        difference = self.brokers.difference()
        if difference:
            findings.faults.append(difference)
        return findings, image

    def finish(self) -> Findings:
        """The last check of this pair: consumers at the end, a clean stop of both, their files."""
        findings, image = self.check()
        if image is None:
            return findings

        def caught_up() -> bool:
            return all(
                len(self.ledger.seen.get(queue, {})) >= len(stored)
                for queue, stored in image.queues.items()
                if queue[0] in TOPICS
            )

        if not until(caught_up, PROGRESS_S):
            findings.faults.append(f"consumers did not reach the end within {PROGRESS_S} s")
        self._load.close()
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

    def _wait(self, longest_s: float) -> None:
        """A random time up to `longest_s`: the seed says how long."""
        until(lambda: False, self.chance.random() * longest_s, longest_s)

    def _remove(self) -> None:
        if not self.keep:
            shutil.rmtree(self.directory)
