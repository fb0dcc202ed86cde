"""The directory that a store is restored into: empty before, and no store until it is whole.

    stratamq/restoring     there from the first change until everything else is durable

A log service refuses a directory with that file, and the next restore begins it again: what such a
directory has was made by the one before.
"""

from collections.abc import Iterable, Mapping

from stratamq.errors import NotWritableError, StoreRefusedError
from stratamq.files.journal import Journal
from stratamq.files.metadata import MetadataFile
from stratamq.files.port import EntryKind, Files, Lock
from stratamq.formats.store_paths import (
    CONSUMER_OFFSETS_PATH,
    GENERATIONS_PATH,
    LOCK_PATH,
    OWN_DIRECTORY,
    RESTORING_PATH,
    SNAPSHOT_PATH,
    TEMPORARY_DIRECTORY,
    TOPICS_PATH,
)
from stratamq.store.generations import generations_document
from stratamq.store.queue_snapshot import (
    QueueTable,
    TableSnapshot,
    commit_of,
    lock_text,
    pieces_of,
)
from stratamq.store.topic_table import queue_counts, topics_document
from stratamq.tier.consumer_offsets import TABLE, OffsetTable


class RestoredDirectory:
    """Blocking, each step durable on return. `begin` first, `finish` last."""

    def __init__(self, files: Files, pid: int) -> None:
        self._files = files
        self._pid = pid
        self._lock: Lock | None = None

    def begin(self) -> bool:
        """Whether an earlier restore was interrupted here, whose files are removed.
        StoreRefusedError: the directory holds something; NotWritableError: another process works in
        it."""
        resumed = self._files.entry(RESTORING_PATH) is not None
        if not resumed:
            self._require_empty()
            self._files.create(RESTORING_PATH, 0, sparse=True)
        try:
            self._lock = self._files.lock(LOCK_PATH, lock_text(self._pid))
        except BlockingIOError as error:
            raise NotWritableError("another process works in this directory") from error
        self._files.sync_directory("")
        if resumed:
            spared = (OWN_DIRECTORY, LOCK_PATH)
            self._remove_below("", spared)
            self._remove_below(OWN_DIRECTORY, (RESTORING_PATH, TEMPORARY_DIRECTORY))
        self._files.clean_temporary()
        return resumed

    def store_topics(self, queues: Iterable[tuple[str, int]]) -> None:
        """A topic has as many queues as the highest number of those that are there requires."""
        MetadataFile(self._files, TOPICS_PATH).store(topics_document(queue_counts(queues)))

    def store_consumer_offsets(self, offsets: OffsetTable) -> None:
        if offsets:
            table: Mapping[str, object] = offsets
            MetadataFile(self._files, CONSUMER_OFFSETS_PATH).store({TABLE: dict(table)})

    def store_history(
        self, snapshot: TableSnapshot, queues: QueueTable, segment_bytes: int
    ) -> None:
        """The log is known whole up to its end, and of which generation it is: a log service goes
        on from there."""
        journal = Journal(self._files, SNAPSHOT_PATH)
        journal.rewrite_all(pieces_of([queues]), commit_of(snapshot))
        listed = [(snapshot.generation, snapshot.minimum or 0)]
        MetadataFile(self._files, GENERATIONS_PATH).store(
            generations_document(listed, segment_bytes)
        )

    def finish(self) -> None:
        """It is a store from now on."""
        self._files.sync_directory("")
        self._files.unlink(RESTORING_PATH)
        self._files.sync_directory(OWN_DIRECTORY)
        self.close()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _require_empty(self) -> None:
        found = [entry.name for entry in self._files.list("") if entry.name != OWN_DIRECTORY]
        own = [f"{OWN_DIRECTORY}/{entry.name}" for entry in self._files.list(OWN_DIRECTORY)]
        found += [path for path in own if path != TEMPORARY_DIRECTORY]
        if found:
            raise StoreRefusedError(
                f"the directory is not empty ({', '.join(found[:3])}): a store is restored into an "
                "empty one"
            )

    def _remove_below(self, directory: str, spared: tuple[str, ...]) -> None:
        for entry in self._files.list(directory):
            path = f"{directory}/{entry.name}" if directory else entry.name
            if path in spared:
                continue
            if entry.kind is EntryKind.DIRECTORY:
                self._remove_below(path, ())
                self._files.remove_directory(path)
            else:
                self._files.unlink(path)
        self._files.sync_directory(directory)
