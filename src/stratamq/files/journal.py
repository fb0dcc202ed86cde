"""A large table on disk: changes are appended to a file, which is rewritten when it has become much
longer than its table. One writer; the cost of a change depends only on its size.

    StrataMQ journal 1\\n
    <crc32> + <JSON>\\n      a piece: some entries of the table
    <crc32> = <JSON>\\n      a commit: what was written so far is the table's state, and this of it

The checksum (eight hex digits) covers its line and those before it, so that a line that an earlier
writer left behind is none. A reader takes what is before the last commit that it can reach; the
rest was torn by a crash. The file that a new one replaces is kept as `<name>.previous`.

    append   pieces and a commit written at the end, synced
    rewrite  <name>.tmp written in steps, synced -> main becomes the previous -> it becomes main
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

from stratamq.files.paths import parent
from stratamq.files.port import EntryKind, File, Files
from stratamq.formats.store_paths import ASIDE_DIRECTORY

_HEAD = b"StrataMQ journal 1\n"
_READ_BYTES = 1 << 20
_WRITTEN_BYTES = 256 << 10
_SLACK_BYTES = 1 << 20
"""Changes to a small table accumulate up to this size before it is rewritten."""
PIECE_ENTRIES = 500
"""Encoding so many holds other threads up for less than a millisecond."""
_LONGEST_LINE_BYTES = 64 << 20


class Journal:
    """`load` first, everything on one lane. OSError leaves the last commit readable: what failed
    is written with the next commit, which must be a whole table by `must_rewrite`."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self.faults: list[str] = []
        self.found_previous = False
        """The last `load` used the file before the last."""
        self._files = files
        self._end = 0
        """Where the main file's last commit ends; 0: there is none to append to."""
        self._crc = 0
        self._rewritten_bytes = 0
        self._new: _Writing | None = None

    @property
    def must_rewrite(self) -> bool:
        """Whether the whole table must be written next: there is none, or the changes have outgrown
        it."""
        return not self._end or self._end > 2 * self._rewritten_bytes + _SLACK_BYTES

    @property
    def can_append(self) -> bool:
        return self._end > 0

    # --- reading ---

    def load(self, apply: Callable[[Any], None]) -> Any | None:
        """Give `apply` every piece that counts, in order; the last commit's value, or None.

        Never raises for what the files hold; `faults` has what is wrong with them.
        """
        self._end, self.faults, self.found_previous = 0, [], False
        for path in (self.path, f"{self.path}.previous"):
            try:
                committed = self._load(path, apply)
            except (OSError, ValueError, RecursionError) as error:
                self.faults.append(f"{path}: {error}")
                continue
            if committed is not None:
                self.found_previous = path != self.path
                return committed
        return None

    def _load(self, path: str, apply: Callable[[Any], None]) -> Any | None:
        entry = self._files.entry(path)
        if entry is None:
            return None
        if entry.kind is not EntryKind.FILE:
            raise ValueError(f"a {entry.kind.value}, no file")
        with closing(self._files.open(path)) as file:
            end, crc, first = 0, 0, 0
            for kind, at, crc_here, _ in _lines(file):
                if kind == b"=":
                    end, crc = at, crc_here
                    first = first or at
            if not end:
                raise ValueError("it holds no whole state")
            if end < file.size:
                self.faults.append(f"{path}: what follows its last whole state is not used")
            committed = None
            for kind, at, _, data in _lines(file):
                if kind == b"+":
                    apply(json.loads(data))
                else:
                    committed = json.loads(data)
                if at == end:
                    break
        if path == self.path:
            self._end, self._crc, self._rewritten_bytes = end, crc, first
        return committed

    # --- writing ---

    def append(self, pieces: Iterable[Any], commit: Any) -> None:
        """Durable on return."""
        assert self._end, "there is no table to change"
        end, self._end = self._end, 0  # if this fails a new file begins
        with closing(self._files.open(self.path, writable=True)) as file:
            if file.size != end:
                file.resize(end)
            writing = _Writing(file, end, self._crc)
            for piece in pieces:
                writing.line(b"+", piece)
            writing.line(b"=", commit)
            writing.spill()
            file.flush()
        self._end, self._crc = writing.end, writing.crc

    def begin(self) -> None:
        """Begin a new file beside the main one. `add` pieces to it, `finish` it."""
        self.give_up()
        path = f"{self.path}.tmp"
        self._make_way(path)
        if self._files.entry(path) is not None:
            self._files.unlink(path)
        self._files.create(path, 0, sparse=True)
        file = self._files.open(path, writable=True)
        file.resize(len(_HEAD))
        file.write(0, _HEAD)
        self._new = _Writing(file, len(_HEAD), 0)

    def add(self, pieces: Iterable[Any]) -> None:
        assert self._new is not None
        for piece in pieces:
            self._new.line(b"+", piece)
        self._new.spill()

    def finish(self, pieces: Iterable[Any], commit: Any) -> None:
        """The new file becomes the main one; durable on return."""
        assert self._new is not None
        self.add(pieces)
        self._new.line(b"=", commit)
        writing, self._new = self._new, None
        try:
            writing.spill()
            writing.file.flush()
        finally:
            writing.file.close()
        for path in (self.path, f"{self.path}.previous"):
            self._make_way(path)
        if self._end and self._files.entry(self.path) is not None:
            self._files.replace(self.path, f"{self.path}.previous")
        self._end = 0
        self._files.replace(f"{self.path}.tmp", self.path)
        self._files.sync_directory(parent(self.path))
        self._end, self._crc, self._rewritten_bytes = writing.end, writing.crc, writing.end

    def rewrite_all(self, pieces: Iterable[Any], commit: Any) -> None:
        """All of it in one go."""
        self.begin()
        self.finish(pieces, commit)

    def _make_way(self, path: str) -> None:
        """What is no file does not stand in a file's way."""
        entry = self._files.entry(path)
        if entry is None or entry.kind is EntryKind.FILE:
            return
        self._files.make_directory(ASIDE_DIRECTORY)
        target = f"{ASIDE_DIRECTORY}/{path.replace('/', ',')}"
        count, free = 1, target
        while self._files.entry(free) is not None:
            count += 1
            free = f"{target}.{count}"
        self._files.replace(path, free)
        self._files.sync_directory(ASIDE_DIRECTORY)
        self._files.sync_directory(parent(path))

    def give_up(self) -> None:
        """Forget a file that was begun."""
        if self._new is not None:
            self._new.file.close()
            self._new = None


class _Writing:
    def __init__(self, file: File, end: int, crc: int) -> None:
        self.file = file
        self.end = end
        """With what is held back."""
        self.crc = crc
        self._lines: list[bytes] = []
        self._held = 0

    def line(self, kind: bytes, value: Any) -> None:
        text = json.dumps(value, separators=(",", ":")).encode()
        self.crc = zlib.crc32(kind + text, self.crc)
        line = b"%08x %b %b\n" % (self.crc, kind, text)
        self._lines.append(line)
        self.end += len(line)
        self._held += len(line)
        if self._held >= _WRITTEN_BYTES:
            self.spill()

    def spill(self) -> None:
        data, start = b"".join(self._lines), self.end - self._held
        self._lines, self._held = [], 0
        if data:
            self.file.resize(self.end)
            self.file.write(start, data)


def _lines(file: File) -> Iterator[tuple[bytes, int, int, bytes]]:
    """(kind, end, checksum so far, JSON) of the lines up to the first that is none."""
    if file.read(0, len(_HEAD)) != _HEAD:
        raise ValueError("no journal of a version that is known here")
    held, at, crc, read_to = b"", len(_HEAD), 0, len(_HEAD)
    while True:
        newline = held.find(b"\n")
        if newline < 0:
            more = file.read(read_to, _READ_BYTES)
            if not more or len(held) > _LONGEST_LINE_BYTES:
                return
            read_to += len(more)
            held += more
            continue
        start = 0
        while newline >= 0:
            line = held[start:newline]
            kind, data = line[9:10], line[11:]
            crc = zlib.crc32(kind + data, crc)
            if line[:11] != b"%08x %b " % (crc, kind) or kind not in (b"+", b"="):
                return
            at += len(line) + 1
            yield kind, at, crc, data
            start = newline + 1
            newline = held.find(b"\n", start)
        held = held[start:]
