"""One store with its services, its workload and its checker: where the acts of a trial play."""

import random
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from stratamq.rpc.methods import ROOMS
from stratamq_torture.processes.checker import Checker, Findings
from stratamq_torture.processes.ledger import Ledger
from stratamq_torture.processes.messages import TOPICS, Messages
from stratamq_torture.processes.services import Services, until
from stratamq_torture.processes.stopped_store import check_files
from stratamq_torture.processes.workload import Workload, make_topics, wait_for

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
CATCH_UP_S = 30.0
PROGRESS_S = 30.0


class Stage:
    """`with Stage(…) as stage` starts everything on an empty directory; the workload rests.

    `directory` is made, and removed at the end unless `keep` was set.
    """

    def __init__(
        self,
        seed: int,
        settings: tuple[str, ...],
        root: Path | None = None,
        *,
        consumers: bool = True,
    ) -> None:
        self.keep = False
        self._consumers = consumers
        self.directory = Path(tempfile.mkdtemp(prefix="stratamq-torture-"))
        self.root = root or self.directory / "store"
        self.chance = random.Random(f"stage {seed}")
        self.messages = Messages(seed)
        self.ledger = Ledger()
        self.services = Services(self.root, self.directory / "logs", (*SMALL, *settings))
        self._stack = ExitStack()
        self.workload: Workload
        self.checker: Checker

    def __enter__(self) -> "Stage":
        self.keep = True  # until it has started: what the services wrote says why they did not
        with ExitStack() as stack:
            stack.callback(self._remove)
            self.root.mkdir(exist_ok=True)
            stack.enter_context(self.services)
            self.services.start()
            self.workload = stack.enter_context(
                Workload(self.root, self.messages, self.ledger, consumers=self._consumers)
            )
            client = self.workload.client
            make_topics(client)
            self.checker = Checker(self.root, client, self.messages, self.ledger)
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

    def _remove(self) -> None:
        if not self.keep:
            shutil.rmtree(self.directory)

    # --- what acts are made of ---

    def grow(self, messages: int) -> None:
        """The workload runs until so many more are acknowledged; a fault when it cannot."""
        self.workload.resume()
        if not wait_for(self.workload, messages, PROGRESS_S):
            self.ledger.fault(f"no {messages} messages were acknowledged within {PROGRESS_S} s")

    def restore(self) -> None:
        """Start what does not run, in a random order, and wait until all serve. ServiceFailedError
        when one does not, or has ended by itself."""
        self._require_alive()
        missing = [room for room in ROOMS if room not in self.services.running]
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

        def caught_up() -> bool:
            return all(
                len(self.ledger.seen.get(queue, {})) >= len(stored)
                for queue, stored in image.queues.items()
                if queue[0] in TOPICS
            )

        if self._consumers and not until(caught_up, CATCH_UP_S):
            findings.faults.append(f"consumers did not reach the end within {CATCH_UP_S} s")
        self.services.stop()
        findings.faults += check_files(self.root, image, INDEX_SLOTS, INDEX_ITEMS)
        return findings
