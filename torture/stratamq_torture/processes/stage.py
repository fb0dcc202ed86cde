"""One store with its services, its workload and its checker: where the acts of a trial play."""

import shutil
from contextlib import ExitStack
from pathlib import Path

from stratamq.rpc.rooms import ESSENTIAL
from stratamq_torture.processes.checker import Checker, Findings
from stratamq_torture.processes.harness import Harness
from stratamq_torture.processes.services import Services
from stratamq_torture.processes.stopped_store import check_files
from stratamq_torture.processes.workload import Workload, make_topics

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
