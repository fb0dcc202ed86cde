"""A broker's store from its tier alone: its log is written again, and its services make the rest.

The tier's records go into a new log in the order of their store times; queue offsets stay what they
are, places and checksums of records are new. The dispatcher and the index build their files from
it.

Restoring is a promotion. The broker's tier is claimed with a term above that of its last writer,
and every queue is taken over before it is read: a broker that was thought dead can add nothing that
the new log does not have. The log's first generation has that term; a service that follows it finds
its own history in the tier and goes on at the log's end.

A queue's offsets have no gap in a log. Of a queue with a hole, which the old log had deleted before
it was uploaded, what is behind the last one is restored; what is before stays readable in the tier.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from stratamq.errors import NotFoundError, NotWritableError
from stratamq.files.port import Files, Random
from stratamq.formats.generation_number import (
    GREATEST_TERM,
    RANDOM_BITS,
    make_number,
    term_of,
)
from stratamq.formats.tier_manifest import ManifestPart
from stratamq.formats.tier_progress import QueueName, TierProgress
from stratamq.store.queue_snapshot import QueueTable, TableSnapshot
from stratamq.tier.consumer_offsets import load_consumer_offsets
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.reading.contents import load_writer
from stratamq.tier.reading.manifests import ManifestQueue, queue_of
from stratamq.tier.reading.queue_list import load_queue_list, missing, missing_queues
from stratamq.tier.reading.verify import queues_of
from stratamq.tier.restoring.directory import RestoredDirectory
from stratamq.tier.restoring.log_writer import LogWriter
from stratamq.tier.restoring.merging import Merge, QueueCursor, chunk_bytes
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.progress import ProgressObject, load_progress
from stratamq.tier.writing.queue_writer import TierQueueWriter

DEFAULT_SEGMENT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Messages of a queue below queue offset `before`, which only the tier has."""

    place: QueuePlace
    messages: int
    before: int


@dataclass(frozen=True, slots=True)
class Restored:
    """How far it is, in the end of all. `end`: of the new log, in bytes; `groups`: of consumers;
    `lost`: a sentence each for what the tier has had, and has no more."""

    queues: int
    messages: int
    of_messages: int
    end: int
    groups: int = 0
    left_out: tuple[LeftOut, ...] = ()
    lost: tuple[str, ...] = ()
    resumed: bool = False
    """An interrupted restore was begun again."""


class Restore:
    """Restores one broker into an empty directory. `progress` is called after every few
    megabytes.
    """

    def __init__(
        self,
        cluster: str,
        broker: str,
        files: Files,
        pid: int,
        random: Random,
        progress: Callable[[Restored], None],
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
    ) -> None:
        self._names = cluster, broker
        self._random = random
        self._progress = progress
        self._segment_bytes = segment_bytes
        self._directory = RestoredDirectory(files, pid)
        self._log = LogWriter(files, segment_bytes)

    def run(self, positions: bool) -> Procedure[Restored]:
        """`positions`: the storage's. StoreRefusedError, NotFoundError, CorruptionError,
        FencedError: the directory is no store then, and a restore may be begun again."""
        places = yield from queues_of(*self._names)
        if not places:
            raise NotFoundError(f"the tier has nothing of the broker {'/'.join(self._names)}")
        resumed = self._directory.begin()
        try:
            return replace((yield from self._restore(places, positions)), resumed=resumed)
        finally:
            self._log.close()
            self._directory.close()

    def _restore(self, places: list[QueuePlace], positions: bool) -> Procedure[Restored]:
        generation = yield from self._next_generation()
        epoch = yield from claim(*self._names, generation)
        queues: list[tuple[QueuePlace, ManifestQueue]] = []
        progress = yield from load_progress(*self._names)
        before = progress[0].generation if progress is not None else 0
        listed = yield from load_queue_list(*self._names)
        for place in places:
            is_listed = (place.topic, place.queue_id) in listed
            writer = TierQueueWriter(place, epoch, positions, TierLimits(), listed=is_listed)
            manifest = yield from writer.take_over(_NO_END, 0, before, other_log=True)
            manifest = manifest or (yield from writer.fence())
            if manifest.records:
                queues.append((place, (yield from queue_of(place, manifest))))
        offsets = yield from load_consumer_offsets(*self._names)
        restored, last_ms = yield from self._write_log(queues)
        lost = self._lost(queues, listed, progress[0] if progress is not None else None)
        groups = len({name.partition("@")[2] for name in offsets})
        restored = replace(restored, groups=groups, lost=lost)
        self._directory.store_topics((place.topic, place.queue_id) for place, _ in queues)
        self._directory.store_consumer_offsets(offsets)
        self._store_history(generation, queues, last_ms)
        # Before the directory is a store: a tier of another log's generation would be refused.
        record = ProgressObject(*self._names, epoch)
        yield from record.load()
        # There is no other log with which the tier could be compared.
        yield from record.store(generation, self._log.end, self._log.end, recorded=True)
        self._directory.finish()
        return restored

    def _lost(
        self,
        queues: list[tuple[QueuePlace, ManifestQueue]],
        listed: Collection[QueueName],
        progress: TierProgress | None,
    ) -> tuple[str, ...]:
        found = [
            f"queue {place.queue_id} of {place.topic}: offsets {hole.start} to {hole.end} are lost"
            for place, one in queues
            for hole in one.manifest.lost
        ]
        gone = missing_queues(*self._names, listed, [place for place, _ in queues])
        found += [missing(place).message for place in gone]
        if progress is not None and progress.put_back:
            found.append("the tier is an older copy of what it was: what came later is not known")
        return tuple(found)

    def _next_generation(self) -> Procedure[int]:
        writer = yield from load_writer(*self._names)
        term = (term_of(writer[0]) if writer is not None else 0) + 1
        if term > GREATEST_TERM:
            raise NotWritableError("no term is left after that of the tier's last writer")
        return make_number(term, 0, self._random.getrandbits(RANDOM_BITS))

    def _write_log(
        self, queues: list[tuple[QueuePlace, ManifestQueue]]
    ) -> Procedure[tuple[Restored, int]]:
        """What was restored, and the last store time."""
        most = chunk_bytes(len(queues))
        cursors, left_out, total = [], [], 0
        for place, found in queues:
            first = max([found.queue.minimum, *(end for _, end in found.queue.holes)])
            all_parts = [part for _, parts in found.parts for part in parts]
            total += _messages(all_parts, first, _NO_END)
            if below := _messages(all_parts, found.queue.minimum, first):
                left_out.append(LeftOut(place, below, first))
            cursors.append(QueueCursor(place, found, first, most))
        merge, messages, last_ms, shown = Merge(cursors), 0, 0, 0
        while (run := (yield from merge.following())) is not None:
            self._log.add(run.records, run.sizes)
            messages += len(run.sizes)
            last_ms = max(last_ms, run.last_ms)
            if self._log.end - shown >= _SHOWN_BYTES:
                shown = self._log.end
                self._progress(Restored(len(queues), messages, total, shown))
        self._log.finish()
        return Restored(
            len(queues), messages, total, self._log.end, left_out=tuple(left_out)
        ), last_ms

    def _store_history(
        self, generation: int, queues: list[tuple[QueuePlace, ManifestQueue]], last_ms: int
    ) -> None:
        table: QueueTable = {
            (place.topic, place.queue_id): found.manifest.end_offset for place, found in queues
        }
        snapshot = TableSnapshot(generation, self._log.end, self._log.last, last_ms, minimum=0)
        self._directory.store_history(snapshot, table, self._segment_bytes)


def _messages(parts: Iterable[ManifestPart], begin: int, end: int) -> int:
    """How many the parts have at queue offsets [begin, end)."""
    return sum(max(0, min(end, part.first + part.count) - max(begin, part.first)) for part in parts)


_SHOWN_BYTES = 256 << 20
_NO_END = 1 << 62
