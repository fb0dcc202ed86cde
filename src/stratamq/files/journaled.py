"""A large JSON file of RocketMQ's, and beside it a journal of what changed since it was written.

A small file is written whole at every save, as RocketMQ does. A larger one is written in steps, and
the more seldom the larger it is; in between the changes are appended to
`stratamq/changes/<path>` (`files.journal`), whose commits name the contents that they follow by
their SHA-256. Changes are entries that replace those of their name, so that they may follow a
content that has some of them already.

    save     journal: the changes
    write    <name>.tmp in steps, synced -> journal: also follows the new content -> the new content
             takes its place -> a new journal, with what changed since the writing began
"""

import errno
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from stratamq.files.journal import PIECE_ENTRIES, Journal
from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.port import Clock, Files
from stratamq.formats.store_paths import CHANGES_DIRECTORY

K = TypeVar("K")
V = TypeVar("V")

SMALL_BYTES = 64 << 10
_MEMBER_BYTES = 64
BYTES_PER_S = 1 << 20
"""A file is not written again before it has grown so old for each of its bytes."""
ENTRIES_PER_STEP = 500
Done = Callable[[BaseException | None], None]
Submit = Callable[[Callable[[], Any], Callable[[Any, BaseException | None], None]], None]
"""Run a task on the owner's worker, one at a time and in order."""


class Table(Protocol, Generic[K, V]):
    """The owner's side. All but `encode` and `head` are called on the engine's thread."""

    def take_changed(self) -> dict[K, V]:
        """What changed since the last call; the values are not changed by anyone afterwards."""

    def __len__(self) -> int:
        """How many members the file's table has."""

    def entries(self, place: int, most: int) -> tuple[list[tuple[K, V]], int]:
        """About `most` entries of whole members from `place` on, in the order in which these came,
        and the place behind them; none at the end."""

    def encode(self, entries: Iterable[tuple[K, V]]) -> JsonObject:
        """Encode entries as members of the file's table. Runs on the worker."""

    def document(self) -> JsonObject:
        """The whole file."""

    def head(self) -> JsonObject:
        """What is in the file beside the table."""


class Journaled(Generic[K, V]):
    """One file. `load` first. Saves that are asked for while one runs share the next."""

    def __init__(
        self,
        files: Files,
        file: MetadataFile,
        member: str,
        table: Table[K, V],
        clock: Clock,
        *,
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        """`member` is the name of the table in the file."""
        self._file = file
        self._journal = Journal(files, f"{CHANGES_DIRECTORY}/{file.path}")
        self._member = member
        self._table = table
        self._clock = clock
        self._small_bytes = small_bytes
        self._unsaved: list[dict[K, V]] = []
        self._since: list[dict[K, V]] | None = None
        """While the file is being written: what changed since that began."""
        self._behind = False
        """The file does not have what the journal has."""
        self._next_write_ns = 0
        self._follows: list[str] = []
        """The contents that the journal's last commit names. Belongs to the worker."""
        self._possible: list[str] = []
        """The contents that a start may find: more than one after a writing that failed. Belongs
        to the worker."""
        self._saved_since = False
        """While the file is being written: the journal got changes that may not be in it."""
        self._place = 0
        self.faults: list[str] = []
        """What the last `load` found wrong with the journal."""
        self._running = False
        self._waiting: list[Done] = []
        self._when_whole: Done | None = None
        self._stopped = False

    def load(
        self, *, foreign: bool, change: Callable[[JsonObject], None]
    ) -> tuple[JsonObject | None, Callable[[], None]]:
        """The file's content, and what applies the journal's changes to it by `change`, once the
        caller has taken the content over."""
        document = self._file.load(foreign=foreign)
        pieces: list[JsonObject] = []
        committed = self._journal.load(pieces.append)
        digest = self._file.content_digest
        follows = committed.get("follows", []) if isinstance(committed, dict) else []
        self.faults = list(self._journal.faults)
        if digest not in follows:
            if pieces:
                self.faults.append(
                    f"{self._journal.path}: its changes follow another content of "
                    f"{self._file.path} and are not used"
                )
            pieces.clear()
        self._follows, self._possible = follows, [digest]
        self._behind = bool(pieces)
        self._unsaved.clear()
        self._since, self._running, self._stopped = None, False, False
        self._table.take_changed()

        def apply() -> None:
            for piece in pieces:
                change(piece)
            self._table.take_changed()

        return document, apply

    @property
    def behind(self) -> bool:
        """The file itself is to be written, now or later."""
        return self._behind

    @property
    def unsaved(self) -> bool:
        """A save failed: what it was to save waits for the next."""
        return bool(self._unsaved)

    @property
    def _small(self) -> bool:
        few = len(self._table) <= self._small_bytes // _MEMBER_BYTES
        return few and self._file.content_bytes <= self._small_bytes

    # --- on the engine's thread ---

    def save(self, submit: Submit, done: Done) -> None:
        """Make what changed until now durable, then call `done`, with the OSError if there was
        one: then the next save tries again."""
        self._waiting.append(done)
        if not self._running:
            self._save(submit)

    def tick(self, submit: Submit) -> None:
        """To be called now and then: writes the file when it is time."""
        due = self._clock.monotonic_ns() >= self._next_write_ns and not self._stopped
        if self._behind and due and not self._running:
            self._begin(submit)

    def save_whole(self, submit: Submit, done: Done) -> None:
        """At the end: everything into the file itself, then call `done`, with the OSError if there
        was one."""

        def saved(error: BaseException | None) -> None:
            if error is not None or not self._behind:
                done(error)
            else:
                self._when_whole = done
                if self._since is None:
                    self._begin(submit)

        self.save(submit, saved)

    def stop(self) -> None:
        """Begin nothing more on the worker: `save_blocking` is what follows, or `load`."""
        self._stopped = True

    def save_blocking(self) -> None:
        """Everything into the file itself. OSError."""
        self._gather()
        if self._small:
            self._store(self._table.document())
        else:
            self._write_blocking()
        self._saved_whole()

    def _gather(self) -> None:
        changed = self._table.take_changed()
        if changed:
            self._unsaved.append(changed)
            if self._since is not None:
                self._since.append(changed)

    def _save(self, submit: Submit) -> None:
        self._gather()
        waiting, self._waiting = self._waiting, []
        if not self._unsaved and not (self._small and self._behind):
            for done in waiting:
                done(None)
            return
        self._running = True
        if self._small and self._since is None:
            document = self._table.document()
            self._submit(submit, lambda: self._store(document), waiting, whole=True)
            return
        unsaved = list(self._unsaved)
        self._submit(submit, lambda: self._append(unsaved), waiting, whole=False)

    def _submit(
        self,
        submit: Submit,
        task: Callable[[], None],
        waiting: list[Done],
        *,
        whole: bool,
    ) -> None:
        unsaved = list(self._unsaved)

        def attempt() -> None:
            try:
                task()
            except OSError:
                # However often it fails, what waits is no more than the table.
                for later in unsaved[1:]:
                    unsaved[0].update(later)
                raise

        def finished(_: Any, error: BaseException | None) -> None:
            self._running = False
            lacks = False
            if error is None:
                del self._unsaved[: len(unsaved)]
                self._behind = not whole
                self._saved_since = True
            else:
                del self._unsaved[1 : len(unsaved)]
                lacks = not whole and self._since is not None and self._saved_since
            if error is not None and not whole:
                self._behind, self._next_write_ns = True, 0
            for done in waiting:
                done(error)
            if self._running:
                return  # one of them has begun to write the file
            if lacks and not self._stopped:
                # The journal has changes that the file would lack, and cannot be made to
                # follow it.
                self._begin(submit)
            elif self._since is not None:
                self._step(submit)
            elif self._waiting:
                self._save(submit)

        submit(attempt, finished)

    # --- writing the file in steps ---

    def _begin(self, submit: Submit) -> None:
        if self._small:
            self.save(submit, lambda error: self._written(submit, error))
            return
        self._gather()
        self._since, self._place, self._running = [], 0, True
        self._saved_since = False
        head = self._table.head()
        submit(lambda: self._begin_file(head), lambda _, error: self._stepped(submit, error))

    def _stepped(self, submit: Submit, error: BaseException | None) -> None:
        self._running = False
        if error is not None:
            self._since = None
            self._delay()
            self._written(submit, error)
        elif self._waiting:
            self._save(submit)  # and on with the file behind it
        elif self._since is not None:
            self._step(submit)

    def _step(self, submit: Submit) -> None:
        if self._stopped:
            return
        some, self._place = self._table.entries(self._place, ENTRIES_PER_STEP)
        self._running = True
        if some:
            submit(lambda: self._add(some), lambda _, error: self._stepped(submit, error))
            return
        self._gather()
        since, self._since = self._since or [], None
        unsaved = list(self._unsaved)

        def finished(_: Any, error: BaseException | None) -> None:
            self._running = False
            self._behind = error is not None or bool(since)
            if error is None:
                del self._unsaved[: len(unsaved)]
            self._delay()
            self._written(submit, error)

        submit(lambda: self._finish(unsaved, since), finished)

    def _written(self, submit: Submit, error: BaseException | None) -> None:
        done = self._when_whole
        if done is not None and error is None and self._behind:
            self._begin(submit)  # something changed meanwhile
        elif done is not None:
            self._when_whole = None
            done(error)
        if self._waiting and not self._running:
            self._save(submit)

    def _delay(self) -> None:
        wait_ns = self._file.content_bytes * 1_000_000_000 // BYTES_PER_S
        self._next_write_ns = self._clock.monotonic_ns() + wait_ns

    def _saved_whole(self) -> None:
        self._unsaved.clear()
        self._behind = False
        self._delay()

    # --- on the worker ---

    def _store(self, document: JsonObject) -> None:
        self._file.store(document)
        self._possible = [self._file.content_digest]
        if self._follows:
            # Should the file ever have that content again, its changes are not to follow it.
            self._journal.rewrite_all((), {"follows": []})
            self._follows = []

    def _append(self, changes: list[dict[K, V]]) -> None:
        self._look()
        # A start that prefers an older file to one that is not vouched for would drop the journal.
        self._file.adopt()
        followed = [digest in self._follows for digest in self._possible]
        commit = {"follows": self._possible}
        if not any(followed):
            # What an earlier journal held is in the file, or was lost with it.
            self._journal.rewrite_all(self._pieces(changes), commit)
        elif all(followed) and self._journal.can_append:
            self._journal.append(self._pieces(changes), commit)
        else:
            raise OSError(
                errno.EIO, "changes wait until the file itself is written", self._file.path
            )
        self._follows = self._possible

    def _look(self) -> None:
        """What a writing that failed has left."""
        found = self._file.look_again()
        self._possible = [*dict.fromkeys([*self._possible, *found])]

    def _pieces(self, changes: Iterable[dict[K, V]]) -> Iterator[JsonObject]:
        for table in changes:
            left = iter(table.items())
            while some := list(islice(left, PIECE_ENTRIES)):
                yield self._table.encode(some)

    def _begin_file(self, head: JsonObject) -> None:
        self._look()
        self._file.begin()
        members = json.dumps(head)[1:-1]
        opening = f"{{{members}{',' if members else ''}{json.dumps(self._member)}:{{"
        self._file.add(opening.encode())
        self._first = True

    def _add(self, entries: list[tuple[K, V]]) -> None:
        text = json.dumps(self._table.encode(entries), separators=(",", ":"))[1:-1]
        if text:
            self._file.add((text if self._first else f",\n{text}").encode())
            self._first = False

    def _finish(self, unsaved: list[dict[K, V]], since: list[dict[K, V]]) -> None:
        """`unsaved` goes to the journal first: applied to the new content it changes nothing back,
        whatever entries the new one has of later than the journal's."""
        self._file.add(b"}}\n")
        new = self._file.new_digest
        followed = all(digest in self._follows for digest in self._possible)
        if followed and self._journal.can_append:
            follows = [*self._possible, new]
            self._journal.append(self._pieces(unsaved), {"follows": follows})
            self._follows = follows
        self._file.finish()
        self._possible = [new]
        self._journal.rewrite_all(self._pieces(since), {"follows": [new]})
        self._follows = [new]

    def _write_blocking(self) -> None:
        self._since = None
        self._begin_file(self._table.head())
        place = 0
        while True:
            some, place = self._table.entries(place, ENTRIES_PER_STEP)
            if not some:
                break
            self._add(some)
        self._finish(self._unsaved, [])
