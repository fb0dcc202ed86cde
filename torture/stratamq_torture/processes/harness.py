"""What trials on real services have in common: a directory, a load and its ledger, and rounds of a
loss, a restart and a check until a promise is broken."""

import random
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from stratamq.errors import StrataError
from stratamq_torture.processes.checker import Findings
from stratamq_torture.processes.ledger import Ledger
from stratamq_torture.processes.log_image import LogImage
from stratamq_torture.processes.messages import TOPICS, Messages
from stratamq_torture.processes.services import until
from stratamq_torture.processes.workload import Workload, wait_for
from stratamq_torture.report import Report
from stratamq_torture.trial import Progress, Trial, TrialFailedError

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.keep |= error is not None
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


class RoundsOptions(Protocol):
    """`rounds` or `seconds`, whichever ends first."""

    @property
    def rounds(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def seconds(self) -> float | None: ...


class Rounds(Trial):
    """`run` a function that plays one harness (`play`) until it is enough. `command` with `flags`
    runs the same again."""

    def __init__(
        self,
        name: str,
        options: RoundsOptions,
        progress: Progress | None,
        command: str,
        flags: str = "",
    ) -> None:
        super().__init__(name, options.seconds, progress, options.seed)
        self.where = ""
        """Which round it is, for people."""
        self._options = options
        self._command = command
        self._flags = flags

    @property
    def more(self) -> bool:
        return self.in_time and self.done < self._options.rounds

    def next_seed(self) -> int:
        return self.chance.randrange(LARGEST_SEED)

    def run(self, play: Callable[[], None]) -> Report:
        report = self.report
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
            f"stratamq torture {self._command} --seed {self._options.seed} --rounds {rounds}"
            f"{self._flags}"
        )
