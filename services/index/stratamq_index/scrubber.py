"""Full index files are checked against the checksum they were sealed with; what differs is rebuilt.

    stratamq/index-checksums.json    by file name: the header it had, and the CRC-32 of its bytes

A file that is full changes no more. Its checksum is taken once it is named by the watermark, and
looked at again in a pass over all full files: one at every start, then one a day, a piece at a time
in the query lane and within a budget, without keeping in the cache what no query read. A damaged
item makes answers lack messages without an error until it is found.
"""

import logging
from collections.abc import Generator
from dataclasses import astuple, dataclass

from stratamq.errors import StrataError
from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Clock, File, Files, Worker
from stratamq.formats.crc import crc32
from stratamq.formats.store_paths import INDEX_CHECKSUMS_PATH
from stratamq_index.engine import IndexEngine
from stratamq_index.index_file import path_of
from stratamq_index.rebuild import Rebuild, Wait
from stratamq_index.watermark import FileRecord

log = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
PASS_INTERVAL_NS = 24 * 3600 * 1_000_000_000
REBUILD_TURN_NS = 2_000_000


@dataclass(frozen=True, slots=True)
class Checksum:
    """`header`: the numbers of the header that the file was sealed with."""

    header: tuple[int, ...]
    crc: int


class _Reading:
    """One file on its way through the checksum. Used in the query lane alone."""

    def __init__(self, files: Files, record: FileRecord, epoch: int) -> None:
        self.record = record
        self.epoch = epoch
        self.crc = 0
        self._files = files
        self._file: File | None = None
        self.position = 0

    def step(self) -> bool:
        """The next piece; True at the end. OSError when it cannot be read."""
        if self._file is None:
            self._file = self._files.open(path_of(self.record.name))
        data = self._file.read(self.position, PIECE_BYTES)
        self.crc = crc32(data, self.crc)
        self._file.drop_cache(self.position, len(data))
        self.position += len(data)
        return not data

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class IndexScrubber:
    """Belongs to the engine's thread. `load` at the start, then `tick` several times a second."""

    def __init__(
        self,
        engine: IndexEngine,
        files: Files,
        clock: Clock,
        write_worker: Worker,
        query_worker: Worker,
        bytes_per_second: int,
    ) -> None:
        """`bytes_per_second` 0: nothing is ever looked at."""
        self.verified = 0
        """Files that were looked at and are right, since the start."""
        self.damaged = 0
        self._engine = engine
        self._files = files
        self._clock = clock
        self._write_worker = write_worker
        self._query_worker = query_worker
        self._bytes_per_second = bytes_per_second
        self._file = MetadataFile(files, INDEX_CHECKSUMS_PATH)
        self._sums: dict[str, Checksum] = {}
        self._looked_at: set[str] = set()
        """In this pass."""
        self._next_pass_ns = clock.monotonic_ns() + PASS_INTERVAL_NS
        self._next_piece_ns = 0
        self._reading: _Reading | None = None
        self._busy = self._dirty = self._storing = False
        self._rebuilding: FileRecord | None = None
        self._steps: Generator[Wait | None, None, None] | None = None
        self._wait: Wait | None = None
        self._turns = 0
        """The number of rebuilds."""

    def load(self) -> None:
        """Never raises for what the file holds: without it checksums are taken again."""
        data = self._file.load() or {}
        self._engine.report_lines += self._file.found.faults
        listed = data.get("files")
        for name, value in (listed if isinstance(listed, dict) else {}).items():
            numbers = value if isinstance(value, list) else []
            if len(numbers) == 7 and all(type(number) is int for number in numbers):
                self._sums[name] = Checksum(tuple(numbers[:-1]), numbers[-1])

    @property
    def state(self) -> tuple[object, ...]:
        """Moves while there is something to do."""
        position = self._reading.position if self._reading is not None else -1
        return len(self._looked_at), position, self._dirty, self._storing, self._turns

    @property
    def rests(self) -> bool:
        """Nothing is read, stored or built again."""
        return self._reading is None and self._steps is None and not (self._dirty or self._storing)

    def tick(self) -> None:
        engine = self._engine
        if not self._bytes_per_second or not engine.followed.serving or engine.stop_reason:
            return
        while engine.exchanged:
            self._forget(engine.exchanged.pop())
        if self._steps is not None:
            self._rebuild_on()
            return
        if self._dirty and not self._storing:
            self._store()
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._next_pass_ns:
            self._looked_at.clear()
            self._next_pass_ns = now_ns + PASS_INTERVAL_NS
        if self._busy or now_ns < self._next_piece_ns:
            return
        if self._reading is None:
            record = self._next_record()
            if record is None:
                return
            self._reading = _Reading(self._files, record, engine.searches.epoch)
        self._read_on(self._reading, now_ns)

    def close(self) -> None:
        """Give up what is under way: the process ends."""
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        if self._reading is not None:
            self._query_worker.submit(self._reading.close, _ignore)

    # --- one file ---

    def _next_record(self) -> FileRecord | None:
        sealed = self._engine.series.sealed if self._engine.followed.serving else []
        return next((record for record in sealed if record.name not in self._looked_at), None)

    def _read_on(self, reading: _Reading, now_ns: int) -> None:
        self._busy = True
        self._next_piece_ns = now_ns + PIECE_BYTES * 1_000_000_000 // self._bytes_per_second

        def done(ended: bool | None, error: BaseException | None) -> None:
            self._busy = False
            if error is None and not ended:
                return
            self._reading = None
            self._query_worker.submit(reading.close, _ignore)
            if isinstance(error, OSError):
                self._looked_at.add(reading.record.name)
                self._damage(reading.record, str(error.strerror or error))
            elif error is not None:
                raise error
            elif reading.epoch == self._engine.searches.epoch:
                self._judge(reading.record, reading.crc)
            # else: a file was exchanged or cut meanwhile; it is looked at again

        self._query_worker.submit(reading.step, done)

    def _judge(self, record: FileRecord, crc: int) -> None:
        self._looked_at.add(record.name)
        found = Checksum(astuple(record.header), crc)
        known = self._sums.get(record.name)
        if known is None or known.header != found.header:
            self._sums[record.name] = found
            self._dirty = True
        elif known == found:
            self.verified += 1
        else:
            self._damage(record, "it does not have the checksum it was sealed with")

    def _forget(self, name: str) -> None:
        """It was built again."""
        self._looked_at.discard(name)
        if self._sums.pop(name, None) is not None:
            self._dirty = True

    def _store(self) -> None:
        names = {record.name for record in self._engine.series.sealed}
        self._sums = {name: each for name, each in self._sums.items() if name in names}
        data = {name: [*each.header, each.crc] for name, each in self._sums.items()}
        self._dirty, self._storing = False, True

        def stored(_: None, error: BaseException | None) -> None:
            self._storing = False
            if isinstance(error, OSError):
                log.warning("checksums not stored", extra={"reason": str(error)})
                # Tried again when the next file is full.
            elif error is not None:
                raise error

        self._write_worker.submit(lambda: self._file.store({"files": data}), stored)

    # --- damage ---

    def _damage(self, record: FileRecord, why: str) -> None:
        self.damaged += 1
        path = path_of(record.name)
        log.error("index file damaged", extra={"file": path, "reason": why})
        header = record.header
        try:
            rebuild = Rebuild(self._engine, header.begin_phy_offset, header.end_phy_offset + 1)
        except StrataError as error:
            self._engine.report_lines.append(f"{path} is damaged ({why}): {error}")
            return
        self._engine.report_lines.append(f"{path} is damaged ({why}): it is built again")
        self._rebuilding, self._steps, self._wait = record, rebuild.steps(), None

    def _rebuild_on(self) -> None:
        """Some steps of the rebuild; it ends by itself."""
        steps, record = self._steps, self._rebuilding
        assert steps is not None and record is not None
        self._turns += 1
        until_ns = self._clock.monotonic_ns() + REBUILD_TURN_NS
        try:
            while self._wait is None or self._wait.over:
                self._wait = next(steps)
                if self._clock.monotonic_ns() >= until_ns:
                    return
        except StopIteration:
            log.info("index file rebuilt", extra={"file": path_of(record.name)})
            self._steps = self._wait = None
        except (StrataError, OSError) as error:
            path = path_of(record.name)
            self._engine.report_lines.append(f"{path} cannot be built again: {error}")
            self._steps = self._wait = None


def _ignore(_: object, error: BaseException | None) -> None:
    if error is not None:
        log.error("closing a file failed", extra={"reason": str(error)})
