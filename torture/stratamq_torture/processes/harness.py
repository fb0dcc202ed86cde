"""What trials on real services have in common: a directory, a load and its ledger, and rounds of a
loss, a restart and a check until a promise is broken."""

import random
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from stratamq.errors import StrataError
from stratamq.rpc.rooms import ESSENTIAL
from stratamq_torture.processes.checker import Checker, Findings
from stratamq_torture.processes.ledger import TOPICS, Ledger, LogImage, Messages, check_files
from stratamq_torture.processes.services import Services, until
from stratamq_torture.processes.workload import Workload, make_topics, wait_for
from stratamq_torture.trial import Options, Progress, Report, Trial, TrialFailedError

LARGEST_SEED = 1 << 31


class Harness(ABC):
    """`with` it everything is started on empty directories, `workload` upon it.

    `directory` is made, and removed at the end unless `keep` was set.
    """

    progress_s: float
    """Within this the load must get on, and consumers reach the end."""

    def __init__(self, seed: int, name: str) -> None:
        # Until it has started: what the services wrote has the reason if they did not.
        self.keep = True
        self.directory = Path(tempfile.mkdtemp(prefix="stratamq-torture-"))
        self.chance = random.Random(f"{name} {seed}")
        self.messages = Messages(seed)
        self.ledger = Ledger()
        self.workload: Workload
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._remove)
            self._start(stack)
            self._stack = stack.pop_all()
        self.keep = False
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.keep |= kind is not None
        self._stack.close()

    @abstractmethod
    def _start(self, stack: ExitStack) -> None:
        """Everything that runs, and `workload`; `stack` ends it."""

    @abstractmethod
    def check(self) -> Findings:
        """Every promise since the last check, the load at rest."""

    @abstractmethod
    def finish(self) -> Findings:
        """Every promise from the first byte, consumers at the end, a clean stop, the files."""

    @property
    @abstractmethod
    def kills(self) -> int:
        """Processes that died by SIGKILL here."""

    def preserve(self) -> None:
        """For people: the directory stays."""
        self.keep = True

    def grow(self, messages: int) -> None:
        """The load runs until so many more are acknowledged; a fault when it cannot."""
        self.workload.resume()
        if not wait_for(self.workload, messages, self.progress_s):
            self.ledger.fault(
                f"no {messages} messages were acknowledged within {self.progress_s} s"
            )

    def wait(self, longest_s: float) -> None:
        """A random time up to `longest_s`: the seed determines it."""
        until(lambda: False, self.chance.random() * longest_s, longest_s)

    def _consumers_end(self, image: LogImage, findings: Findings) -> None:
        """Consumers must come to the end of every queue."""

        def caught_up() -> bool:
            return all(
                len(self.ledger.seen.get(queue, {})) >= len(stored)
                for queue, stored in image.queues.items()
                if queue[0] in TOPICS
            )

        if not until(caught_up, self.progress_s):
            findings.faults.append(f"consumers did not reach the end within {self.progress_s} s")

    def _remove(self) -> None:
        if not self.keep:
            shutil.rmtree(self.directory)


class Rounds(Trial):
    """`run` a function that plays one harness (`play`) until it is enough. The command, which is
    the first word of `name`, runs the same again with `flags`."""

    def __init__(self, name: str, options: Options, progress: Progress, flags: str = "") -> None:
        super().__init__(name, options, progress)
        self.where = ""
        """Which round it is, for people."""
        self._flags = flags

    @property
    def more(self) -> bool:
        return self.in_time and self.done < self.options.count

    def next_seed(self) -> int:
        return self.chance.randrange(LARGEST_SEED)

    def run(self, play: Callable[[], None]) -> Report:
        report = self.report
        with self.interruptible():
            while self.more and report.passed:
                play()
                report.seeds += 1
        report.rounds = self.done
        return self.ended()

    def play(self, harness: Harness, rounds: int, strike: Callable[[], None]) -> None:
        """A harness from its first message to its files, through up to `rounds` rounds, one at
        least. `strike` brings the load, the loss and the restart, and sets `where`."""
        report = self.report
        self.where = "the start"
        ending = False
        try:
            with harness:
                for number in range(rounds):
                    if number and not self.more:
                        break
                    strike()
                    self._found(harness, harness.check())
                    self.count()
                    if not report.passed:
                        return
                self.where, ending = "the end", True
                findings = harness.finish()
                report.duplicates += findings.duplicates
                self._found(harness, findings, ending=True)
        except (TrialFailedError, StrataError) as error:
            self._fail(harness, [str(error)], ending=ending)
        finally:
            report.kills += harness.kills
            report.acknowledged_messages += len(harness.ledger.acknowledged)

    def _found(self, harness: Harness, findings: Findings, *, ending: bool = False) -> None:
        self.report.lost += len(findings.lost)
        if findings.sentences:
            self._fail(harness, findings.sentences, ending=ending)

    def _fail(self, harness: Harness, sentences: list[str], *, ending: bool) -> None:
        harness.preserve()
        rounds = max(1, self.done + (not ending))
        self.report.failures += [f"round {rounds}, {self.where}: {line}" for line in sentences]
        self.report.failures.append(
            f"the stores and what their services wrote are kept in {harness.directory}; again: "
            f"stratamq torture {self.report.trial.split(',')[0]} --seed {self.options.seed} "
            f"--rounds {rounds}{self._flags}"
        )


SEGMENT_BYTES = 256 << 10
INDEX_SLOTS, INDEX_ITEMS = 500, 2_000
SMALL = (
    f"commitlog.segment_bytes={SEGMENT_BYTES}",
    "commitlog.snapshot_interval_ms=200",
    "dispatcher.queue_file_bytes=8000",
    "dispatcher.flush_interval_ms=60",
    "dispatcher.offsets_persist_interval_ms=200",
    f"index.index_slots={INDEX_SLOTS}",
    f"index.index_items={INDEX_ITEMS}",
    "index.sync_interval_ms=60",
    "index.slot_interval_ms=200",
)
"""Small files and short intervals: everything that happens once an hour happens every second."""


class Stage(Harness):
    """The services of one store; the workload rests at first. `root`: elsewhere than in
    `directory`."""

    progress_s = 30.0

    def __init__(
        self,
        seed: int,
        settings: tuple[str, ...],
        root: Path | None = None,
        *,
        consumers: bool = True,
    ) -> None:
        super().__init__(seed, "stage")
        self._consumers = consumers
        self.root = root or self.directory / "store"
        self.services = Services(self.root, self.directory / "logs", (*SMALL, *settings))
        self.checker: Checker

    def _start(self, stack: ExitStack) -> None:
        self.root.mkdir(exist_ok=True)
        stack.enter_context(self.services)
        self.services.start()
        self.workload = stack.enter_context(
            Workload(self.root, self.messages, self.ledger, consumers=self._consumers)
        )
        client = self.workload.client
        make_topics(client)
        self.checker = Checker(self.root, client, self.messages, self.ledger)

    @property
    def kills(self) -> int:
        return self.services.kills

    def preserve(self) -> None:
        """The directory stays, with a copy of another store."""
        super().preserve()
        if not self.root.is_relative_to(self.directory):
            self.services.kill_all()  # or files would come and go under the copy
            shutil.copytree(self.root, self.directory / "store", dirs_exist_ok=True)

    # --- what acts are made of ---

    def restore(self) -> None:
        """Start what does not run, in a random order, and wait until all serve. ServiceFailedError
        when one does not, or has ended by itself."""
        self._require_alive()
        missing = [room for room in ESSENTIAL if room not in self.services.running]
        self.chance.shuffle(missing)
        for room in missing:
            self.services.spawn(room)
        for room in missing:
            self.services.wait_ready(room)

    def _require_alive(self) -> None:
        for room in self.services.running:
            if self.services.ended(room):
                raise self.services.failed(room, "ended by itself")

    def check(self) -> Findings:
        """Everything since the last check, the workload at rest. ServiceFailedError when a service
        has ended by itself."""
        self._require_alive()
        self.workload.pause()
        self._require_alive()
        return self.checker.check(self.chance)

    def finish(self) -> Findings:
        """The last check of this store: everything again from the first byte, consumers at the end,
        then a clean stop and the files."""
        self.workload.pause()
        self.checker.forget()
        findings = self.checker.check(self.chance, sampled_keys=100)
        image = self.checker.image
        if image is None:
            return findings

        if self._consumers:
            self._consumers_end(image, findings)
        self.services.stop()
        findings.faults += check_files(self.root, image, INDEX_SLOTS, INDEX_ITEMS)
        return findings
