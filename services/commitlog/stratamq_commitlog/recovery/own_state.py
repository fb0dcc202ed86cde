"""What the log keeps about itself under `stratamq/`: generations, and the queue-offset snapshot.

    lock                            holds a text of ours; RocketMQ writes `lock` over it
    stratamq/generations.json       {"segment_bytes", "generations": [[number, start], …], "frame"}
    stratamq/queue-offsets.journal  see `stratamq.store.queue_snapshot`

    stratamq/found-clean            there while the first recovery of a directory runs that RocketMQ
                                    had stopped cleanly

If RocketMQ ran in between, or the frame has gone, nothing of
this is used, and the log is recovered as RocketMQ's own directory would be: these files are moved
to `stratamq/aside/`, and with them a cut that was not carried out yet, and what the scrubber found.
"""

from collections.abc import Iterable

from stratamq.files.journal import PIECE_ENTRIES, Journal
from stratamq.files.metadata import JsonObject, LoadOutcome, MetadataFile, remove_metadata
from stratamq.files.paths import base_name
from stratamq.files.port import EntryKind, Files, Random
from stratamq.formats.frame_verify import NOWHERE
from stratamq.formats.generation_number import RANDOM_BITS, Generation, make_number, starts_of
from stratamq.formats.numbers import NextOffset
from stratamq.formats.store_paths import (
    ASIDE_DIRECTORY,
    CUT_PATH,
    FOUND_CLEAN_PATH,
    MASTER_CONFIRMED_PATH,
    OLD_SNAPSHOT_PATH,
    OWN_DIRECTORY,
    SCRUB_PATH,
    SNAPSHOT_PATH,
)
from stratamq.store.confirmed import LOCK_MARK, LOCK_PATH
from stratamq.store.generations import GENERATIONS_PATH, generations_document
from stratamq.store.origin import ORIGIN_PATH
from stratamq.store.queue_snapshot import FrameMark, QueueTable, TableSnapshot, commit_of, pieces_of
from stratamq.store.sealed import SEALED_PATH, load_sealed, sealed_document

_OF_THE_HISTORY = (
    CUT_PATH,
    GENERATIONS_PATH,
    SNAPSHOT_PATH,
    OLD_SNAPSHOT_PATH,
    FOUND_CLEAN_PATH,
    SEALED_PATH,
    SCRUB_PATH,
    ORIGIN_PATH,
    MASTER_CONFIRMED_PATH,
)
"""What describes the log's bytes, or what is to be done to them. `role.json` does not: the role,
and the promised terms, are the broker's, regardless of which master wrote its log."""

KEPT_GENERATIONS = 1_000


def read_lock_text(files: Files) -> bytes:
    """The lock file's content; empty if it cannot be read: locking it then raises the reason."""
    try:
        file = files.open(LOCK_PATH)
    except OSError:
        return b""
    try:
        return file.read(0, file.size)
    finally:
        file.close()


def is_ours(previous_lock_text: bytes) -> bool:
    """False when RocketMQ held the store last, or no process did."""
    return previous_lock_text.startswith(LOCK_MARK)


def next_generation(
    previous: Generation | None, start: int, random: Random, least_term: int = 0
) -> Generation:
    """The generation of a new start at the log's end. Its number is greater than all before."""
    term, starts = least_term, 0
    if previous is not None:
        term, starts = max(term, previous.term), starts_of(previous.number)
    return make_generation(term, starts + 1, start, random)


def make_generation(term: int, starts: int, start: int, random: Random) -> Generation:
    return Generation(make_number(term, starts, random.getrandbits(RANDOM_BITS)), start)


def extend(generations: list[Generation], new: Generation) -> list[Generation]:
    """The list with `new` at its end; starts of older ones beyond `new.start` come down to it."""
    lowered = [Generation(g.number, min(g.start, new.start)) for g in generations]
    return [*lowered, new][-KEPT_GENERATIONS:]


class OwnState:
    """Reads and writes the two files. `generations` is the list as last loaded or stored."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._generations_file = MetadataFile(files, GENERATIONS_PATH)
        self._journal = Journal(files, SNAPSHOT_PATH)
        self._loaded: TableSnapshot | None = None
        """What the journal holds, as long as it may be added to."""
        self.segment_bytes: int | None = None
        self.generations: list[Generation] = []
        self.faults: list[str] = []
        self.discarded = ""
        """Where `discard` has put what it found."""

    def load(self) -> TableSnapshot | None:
        """The snapshot, and as attributes the generations; nonsense is a fault, not an error."""
        document = self._generations_file.load()
        self.faults += self._generations_file.found.faults
        if document is not None:
            self._take_generations(document)
            found = self._generations_file.found
            if found.outcome is LoadOutcome.USED_PREVIOUS and found.faults:
                # The list before the last: where later generations began is not in it.
                self.generations = []
        ours, older = self._load_journal(), self._load_older()
        if older is not None and (ours is None or ours.place < older.place):
            # A release without the journal ran since: nothing is to be added to it.
            self._journal = Journal(self._files, SNAPSHOT_PATH)
            self._loaded = None
            return older
        self._loaded = ours if self._journal.can_append else None
        return ours

    def _load_journal(self) -> TableSnapshot | None:
        queues: QueueTable = {}
        try:
            committed = self._journal.load(lambda piece: _take(piece, queues))
            self.faults += self._journal.faults
            return None if committed is None else _snapshot(committed, queues)
        except (KeyError, TypeError, ValueError) as error:
            self.faults.append(f"{SNAPSHOT_PATH}: {error!r}")
            self._journal = Journal(self._files, SNAPSHOT_PATH)
            return None

    def _load_older(self) -> TableSnapshot | None:
        file = MetadataFile(self._files, OLD_SNAPSHOT_PATH)
        document = file.load()
        self.faults += file.found.faults
        if document is None:
            return None
        queues: QueueTable = {}
        try:
            _take(document["queues"], queues)
            return _snapshot(document, queues)
        except (KeyError, TypeError, ValueError) as error:
            self.faults.append(f"{OLD_SNAPSHOT_PATH}: {error!r}")
            return None

    def discard(self, wall_ms: int) -> None:
        """Move everything aside: it describes a history that others may have continued. Durable on
        return. Interrupted, the next start moves what is left."""
        self.generations, self.segment_bytes = [], None
        target = f"{ASIDE_DIRECTORY}/own-state-{wall_ms}"
        for path in _OF_THE_HISTORY:
            for name in (path, f"{path}.previous", f"{path}.tmp"):
                entry = self._files.entry(name)
                if entry is not None and entry.kind is not EntryKind.DIRECTORY:
                    self._files.make_directory(target)
                    self._files.replace(name, f"{target}/{base_name(name)}")
                    self.discarded = target
        if self.discarded:
            self._files.sync_directory(target)
            self._files.sync_directory(OWN_DIRECTORY)

    def drop_snapshot(self) -> None:
        """It describes what has left the log. Durable on return."""
        for path in (OLD_SNAPSHOT_PATH, SNAPSHOT_PATH):
            remove_metadata(self._files, path)
        self._journal = Journal(self._files, SNAPSHOT_PATH)
        self._loaded = None

    def set_snapshot_aside(self, wall_ms: int) -> None:
        """It does not fit the log. Durable on return: what recovery then removes of the log must
        not look lost to the next start."""
        self._files.make_directory(ASIDE_DIRECTORY)
        for path in (OLD_SNAPSHOT_PATH, SNAPSHOT_PATH):
            for name in (path, f"{path}.previous"):
                if self._files.entry(name) is not None:
                    target = f"{ASIDE_DIRECTORY}/{base_name(name)}-{wall_ms}"
                    self._files.replace(name, target)
        self._files.sync_directory(ASIDE_DIRECTORY)
        self.drop_snapshot()

    @property
    def found_clean(self) -> bool:
        """A recovery that did not end had found a directory that RocketMQ stopped cleanly."""
        entry = self._files.entry(FOUND_CLEAN_PATH)
        return entry is not None and entry.kind is EntryKind.FILE

    def set_found_clean(self, value: bool) -> None:
        """Durable on return."""
        if value is self.found_clean:
            return
        if value:
            self._files.create(FOUND_CLEAN_PATH, 0, sparse=True)
        else:
            self._files.unlink(FOUND_CLEAN_PATH)
            self._files.sync_directory(OWN_DIRECTORY)

    def store_generations(self, generations: list[Generation], segment_bytes: int) -> None:
        """Durable on return."""
        self._generations_file.store(
            generations_document([(g.number, g.start) for g in generations], segment_bytes)
        )
        self.generations = generations
        self.segment_bytes = segment_bytes

    def begin_sealing(self, end: int, *, seals: bool, history_known: bool) -> int:
        """See `sealing`: durable on return."""
        return begin_sealing(self._files, end, seals=seals, history_known=history_known)

    # --- the snapshot; everything below its offset must be durable before ---

    @property
    def can_append_snapshot(self) -> bool:
        """There is a file that changes may be appended to."""
        return self._journal.can_append

    @property
    def snapshot_outgrown(self) -> bool:
        """The whole table should be written again."""
        return self._journal.must_rewrite

    def first_snapshot(self, snapshot: TableSnapshot, table: QueueTable) -> None:
        """The first one of a start, of the whole table; durable on return. What the file holds
        already is not written again."""
        loaded, self._loaded = self._loaded, None
        if (
            loaded is None
            or self._journal.must_rewrite
            or any(key not in table for key in loaded.queues)
        ):
            self.store_snapshot(snapshot, table)
            return
        held = loaded.queues
        changed = {key: next_ for key, next_ in table.items() if held.get(key) != next_}
        self.append_snapshot(snapshot, [changed])

    def store_snapshot(self, snapshot: TableSnapshot, table: QueueTable) -> None:
        """The whole table. Durable on return."""
        self.begin_snapshot()
        self.finish_snapshot(snapshot, [table])

    def append_snapshot(self, snapshot: TableSnapshot, changes: Iterable[QueueTable]) -> None:
        """What changed since the last one. Durable on return."""
        self._journal.append(pieces_of(changes), commit_of(snapshot))

    def begin_snapshot(self) -> None:
        """Begin a file of the whole table: add to it, then finish it."""
        self._journal.begin()

    def add_to_snapshot(self, entries: list[NextOffset]) -> None:
        self._journal.add(
            entries[at : at + PIECE_ENTRIES] for at in range(0, len(entries), PIECE_ENTRIES)
        )

    def finish_snapshot(self, snapshot: TableSnapshot, changes: Iterable[QueueTable]) -> None:
        """With what changed since it was begun. Durable on return."""
        self._journal.finish(pieces_of(changes), commit_of(snapshot))
        remove_metadata(self._files, OLD_SNAPSHOT_PATH)

    def give_up_snapshot(self) -> None:
        self._journal.give_up()

    def _take_generations(self, document: JsonObject) -> None:
        try:
            listed = [Generation(_i64(n), _i64(s)) for n, s in _items(document["generations"])]
            self.segment_bytes = _i64(document["segment_bytes"])
            self.generations = listed
        except (KeyError, TypeError, ValueError) as error:
            self.faults.append(f"{GENERATIONS_PATH}: {error!r}")


def _take(piece: object, queues: QueueTable) -> None:
    for topic, queue_id, following in _items(piece):
        queues[str(topic), _i64(queue_id)] = _i64(following)


def _snapshot(document: JsonObject, queues: QueueTable) -> TableSnapshot:
    frame = document["frame"]
    found = None
    if frame is not None:
        offset, size, sha256 = _items(frame)
        found = FrameMark(_i64(offset), _i64(size), str(sha256))
    return TableSnapshot(
        generation=_i64(document["generation"]),
        offset=_i64(document["offset"]),
        queues=queues,
        frame=found,
        store_timestamp_ms=_i64(document["store_timestamp_ms"]),
        minimum=None if document.get("minimum") is None else _i64(document["minimum"]),
    )


def _items(value: object) -> list:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, not {type(value).__name__}")
    return value


def _i64(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"expected an offset, not {value!r}")
    return value


def begin_sealing(files: Files, end: int, *, seals: bool, history_known: bool) -> int:
    """Keeps `stratamq/sealed.json` true: from where on every record has a checksum of its own.

        the log starts and        the place is
        adds checksums            where it was, or the end if the log was cut below it
        added none before, or     the log's end
          its history is lost
        adds none, or takes its   nowhere
          bytes from a master

    Durable before the first record is appended after the start, so that no reader ever demands
    a checksum of a record that was written without one.

    The place for a log that starts at `end`; durable on return. Raises OSError.
    """
    file = MetadataFile(files, SEALED_PATH)
    before = load_sealed(file)
    if not seals:
        place = NOWHERE
    elif history_known:
        place = min(before, end)
    else:
        place = end
    if place != before:
        file.store(sealed_document(place))
    return place
