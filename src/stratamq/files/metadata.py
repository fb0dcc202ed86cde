"""Small JSON files that cannot be rebuilt: written whole, checked on reading, the last good kept.

    store:  main.tmp written and synced -> main becomes the previous -> main.tmp becomes main
            -> directory synced
    load:   main, else the previous, else nothing; what is damaged is kept aside

Files of ours (below `stratamq/`) are one line of JSON with the checksum of the bytes of `data`:

    {"version":1,"sha256":"<64 hex digits>","data":{...}}

and `<name>.previous`. RocketMQ's `config/*.json` have no room for a checksum. Theirs lie in
`stratamq/checksums/<path>`, one such file for each because each has another writer: the SHA-256 of
the content about to be written and of the one it follows, and the modification time of the first,
durable before either name changes. Their previous file is RocketMQ's `.bak`. A main file that fits
no checksum is an operator's edit when its modification time is another one: it counts. With the
time that was recorded it is damage: the previous one counts.

A crash between the two renames leaves `<name>.tmp`. Without it a main file that was written and is
not there was taken away: a volume that is not mounted, a restored copy that lacks it.
"""

import enum
import errno
import hashlib
import json
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from stratamq.errors import StrataError
from stratamq.files.paths import parent
from stratamq.files.port import EntryKind, File, Files
from stratamq.formats.json_files import format_json, parse_json
from stratamq.formats.store_paths import ASIDE_DIRECTORY, CHECKSUMS_DIRECTORY, OWN_DIRECTORY

MAXIMUM_BYTES = 1 << 30
"""More is no metadata: it is not written, and refused before it is read into memory."""

_VERSION = 1
_OPENING = b'{"version":%d,"sha256":"' % _VERSION
_MIDDLE = b'","data":'
_CLOSING = b"}\n"
_DATA_AT = len(_OPENING) + 64 + len(_MIDDLE)

JsonObject = dict[str, object]


class LoadOutcome(enum.Enum):
    """What `MetadataFile.load` found."""

    OK = "ok"
    UNVERIFIED = "unverified"
    """It is valid JSON and no checksum of ours covers it: RocketMQ or an operator wrote it."""
    MISSING = "missing"
    USED_PREVIOUS = "used_previous"
    """The main file is damaged, or a crash fell between two renames."""
    DAMAGED = "damaged"
    """Nothing that is left can be used. What there was is kept aside."""


@dataclass(frozen=True, slots=True)
class LoadedMetadata:
    """The whole answer of a load, for reports. `faults` are sentences; `kept_aside` paths."""

    outcome: LoadOutcome
    data: JsonObject | None
    faults: tuple[str, ...] = ()
    kept_aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Content:
    """One file as it is: `data` None if missing (no fault) or unusable (with one)."""

    data: JsonObject | None = None
    verified: bool = False
    raw: bytes | None = None
    fault: str = ""
    kind: EntryKind | None = None
    digest: str = ""
    size: int = 0
    mtime_ns: int = 0
    edited: bool = False
    """Not what we wrote, and written since."""
    usable: bool = False

    @property
    def is_missing(self) -> bool:
        return self.raw is None and not self.fault


class _Writing:
    """A content that is written in pieces."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.sha256 = hashlib.sha256()

    def add(self, piece: bytes) -> None:
        position = self.file.size
        self.file.resize(position + len(piece))
        self.file.write(position, piece)
        self.sha256.update(piece)


class MetadataFile:
    """One metadata file with one writer. Not thread-safe.

    `parse` and `dump` are the JSON dialect of RocketMQ's files; ours are standard JSON.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        parse: Callable[[bytes], object] = parse_json,
        dump: Callable[[JsonObject], bytes] = format_json,
    ) -> None:
        self.path = path
        self.found = LoadedMetadata(LoadOutcome.MISSING, None)
        """The answer of the last `load`."""
        self._files = files
        self._own = path.startswith(f"{OWN_DIRECTORY}/")
        self._previous = f"{path}.previous" if self._own else f"{path}.bak"
        self._temporary = f"{path}.tmp"
        self._checksums = f"{CHECKSUMS_DIRECTORY}/{path}"
        self._parse = parse
        self._dump = dump
        self._writing: _Writing | None = None
        self.content_digest = ""
        """SHA-256 of the main file as last loaded or stored; "" if there is none to go on from."""
        self.content_bytes = 0
        self._attempted = ""
        """SHA-256 of the content that was written last, or was to be."""
        self._main: _Content | None = None
        """The main file as last read or written; None when it must be looked at again."""

    def load(self, *, foreign: bool = False, keep_aside: bool = True) -> JsonObject | None:
        """The newest content that can be trusted, or None; `found` names which and why.

        `foreign`: RocketMQ ran since our last write, so that a main file which fits no
        checksum is its work and not damage. `keep_aside` copies damaged files to `stratamq/aside`;
        a reader that does not own the file turns it off. Never raises for what the files hold.
        """
        main, previous = self._examine()
        # The bytes need not be kept for the next store.
        self._main = replace(main, data=None, raw=None)
        candidates = [(main, True), (previous, False)]
        if not foreign and not main.edited:
            # A verified previous beats a main file that only happens to be valid JSON.
            candidates.sort(key=lambda candidate: not candidate[0].verified)
        chosen = next((c for c in candidates if c[0].data is not None), None)
        faults = [content.fault for content in (main, previous) if content.fault]
        if main.edited and not foreign:
            faults.insert(0, f"{self.path}: edited since it was written here; it counts as it is")
        if self._is_lost(main, previous):
            faults.insert(0, f"{self.path}: missing, though it was written here")
        if chosen is not None and not chosen[1] and main.data is not None:
            faults.insert(0, f"{self.path}: does not fit its checksum")
        kept: list[str] = []
        if keep_aside:
            for content, path in ((main, self.path), (previous, self._previous)):
                unusable = content.fault or (content is main and chosen and not chosen[1])
                if unusable and (content.raw is not None or content.fault):
                    self._keep_aside(path, content, kept, faults)
        if chosen is not None:
            content, is_main = chosen
            outcome = LoadOutcome.OK if content.verified else LoadOutcome.UNVERIFIED
            if not is_main:
                outcome = LoadOutcome.USED_PREVIOUS
                # Whatever main holds now, it must not become the previous at the next store.
                self._main = _Content()
            self.found = LoadedMetadata(outcome, content.data, tuple(faults), tuple(kept))
            self.content_digest, self.content_bytes = content.digest, content.size
        else:
            self.content_digest, self.content_bytes = "", 0
            outcome = LoadOutcome.DAMAGED if faults else LoadOutcome.MISSING
            self.found = LoadedMetadata(outcome, None, tuple(faults), tuple(kept))
        return self.found.data

    @property
    def is_lost(self) -> bool:
        """It was written here, and neither it nor the content before is there. Reads no content."""
        entry, contents = self._files.entry, (self.path, self._previous, self._temporary)
        return not any(map(entry, contents)) and entry(self._checksums) is not None

    def _is_lost(self, main: _Content, previous: _Content) -> bool:
        if not main.is_missing or self._files.entry(self._temporary) is not None:
            return False
        return not previous.is_missing or self._files.entry(self._checksums) is not None

    def store(self, data: JsonObject) -> None:
        """Durable on return. After an OSError a load finds the old content or the new one."""
        if self._main is None:
            self.load()
            assert self._main is not None
        raw = _seal(_dump_json(data)) if self._own else self._dump(data)
        if len(raw) > MAXIMUM_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), self.path)
        self._write_whole(self._temporary, raw)
        self._replace(_digest(raw), len(raw))

    def look_again(self) -> list[str]:
        """After a `store` or `finish` that failed: the SHA-256 of the content that a load finds
        now; with that of the one whose writing failed if it cannot be determined which of them it
        is. A crash may bring back an older content."""
        if self._main is None:
            self.load()
            if self.found.faults:
                return [self.content_digest, self._attempted]
        return [self.content_digest]

    def begin(self) -> None:
        """Begin a new content, to be written in pieces: `add` them, then `finish`."""
        self.give_up()
        # What a crash left stays a file: without it the main one would look taken away.
        if self._files.entry(self._temporary) is None:
            self._files.create(self._temporary, 0, sparse=True)
        file = self._files.open(self._temporary, writable=True)
        file.resize(0)
        self._writing = _Writing(file)

    def add(self, piece: bytes) -> None:
        assert self._writing is not None
        if self._writing.file.size + len(piece) > MAXIMUM_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), self.path)
        self._writing.add(piece)

    @property
    def new_digest(self) -> str:
        assert self._writing is not None
        return self._writing.sha256.hexdigest()

    def finish(self) -> None:
        """What was added becomes the content; durable on return, as after `store`."""
        if self._main is None:
            self.load()
        assert self._writing is not None
        writing, self._writing = self._writing, None
        try:
            writing.file.flush()
            size = writing.file.size
        finally:
            writing.file.close()
        self._replace(writing.sha256.hexdigest(), size)

    def give_up(self) -> None:
        """Forget a content that was begun."""
        if self._writing is not None:
            self._writing.file.close()
            self._writing = None

    def _replace(self, digest: str, size: int) -> None:
        assert self._main is not None
        main, self._main = self._main, None
        self._attempted = digest
        entry = self._files.entry(self._temporary)
        written = 0 if entry is None else entry.mtime_ns
        new = _Content(
            usable=True,
            verified=True,
            kind=EntryKind.FILE,
            digest=digest,
            size=size,
            mtime_ns=written,
        )
        if not self._own:
            self._store_checksums([new, main] if main.digest and main.usable else [new])
        if main.usable:
            self._files.replace(self.path, self._previous)
        self._files.replace(self._temporary, self.path)
        self._files.sync_directory(parent(self.path))
        self._main = new
        self.content_digest, self.content_bytes = digest, size

    def adopt(self) -> None:
        """Vouch for the main file as the last load found it: RocketMQ wrote it. Durable on return.

        Else a later load, without the fact that RocketMQ ran, would prefer an older file that
        fits its checksum.
        """
        main = self._main
        if self._own or self.found.outcome is not LoadOutcome.UNVERIFIED or main is None:
            return
        if not main.verified:
            self._store_checksums([main])
            self._main = replace(main, verified=True)

    def _store_checksums(self, contents: list[_Content]) -> None:
        """Store the checksums before the main file: of its present and its next contents."""
        listed = {
            "contents": [content.digest for content in contents],
            "modified_ns": contents[0].mtime_ns,
        }
        self._write_whole(f"{self._checksums}.tmp", _seal(_dump_json(listed)))
        self._files.replace(f"{self._checksums}.tmp", self._checksums)
        self._files.sync_directory(parent(self._checksums))

    # --- reading ---

    def _examine(self) -> tuple[_Content, _Content]:
        known: set[str] = set()
        modified_ns: object = None
        if not self._own:
            sealed = self._read(self._checksums)
            listed = _unsealed_or_none(sealed.raw) if sealed.raw is not None else None
            if isinstance(listed, dict) and isinstance(listed.get("contents"), list):
                known = {digest for digest in listed["contents"] if isinstance(digest, str)}
                modified_ns = listed.get("modified_ns")  # not there: an older release wrote it
        main = self._interpret(self.path, known)
        if main.data is not None and not main.verified and modified_ns is not None:
            main = replace(main, edited=main.mtime_ns != modified_ns)
        return main, self._interpret(self._previous, known)

    def _interpret(self, path: str, known: set[str]) -> _Content:
        content = self._read(path)
        raw = content.raw
        if raw is None:
            return content
        try:
            data = _unseal(raw) if self._own else self._parse(raw)
        except (ValueError, RecursionError, StrataError) as error:
            return _Content(raw=raw, fault=f"{path}: {error}", kind=content.kind)
        if not isinstance(data, dict):
            return _Content(raw=raw, fault=f"{path}: not a JSON object", kind=content.kind)
        digest = _digest(raw)
        verified = self._own or digest in known
        return replace(
            content, data=data, verified=verified, digest=digest, size=len(raw), usable=True
        )

    def _read(self, path: str) -> _Content:
        try:
            entry = self._files.entry(path)
            if entry is None:
                return _Content()
            if entry.kind is not EntryKind.FILE:
                return _Content(fault=f"{path}: a {entry.kind.value}, no file", kind=entry.kind)
            if entry.size > MAXIMUM_BYTES:
                return _Content(fault=f"{path}: {entry.size} bytes, too many", kind=entry.kind)
            with closing(self._files.open(path)) as file:
                raw = file.read(0, file.size)
                return _Content(raw=raw, kind=entry.kind, mtime_ns=entry.mtime_ns)
        except FileNotFoundError:
            return _Content()
        except OSError as error:
            return _Content(fault=f"{path}: cannot be read: {error.strerror}", kind=EntryKind.FILE)

    # --- writing ---

    def _keep_aside(self, path: str, content: _Content, kept: list[str], faults: list[str]) -> None:
        """Copy a damaged file aside (named by its content: once); move what is no file."""
        try:
            mark = _digest(content.raw)[:12] if content.raw is not None else "unreadable"
            target = f"{ASIDE_DIRECTORY}/{path.replace('/', ',')}.{mark}"
            if content.kind is EntryKind.FILE and content.raw is None:
                return
            if content.kind is EntryKind.FILE:
                if self._files.entry(target) is None:
                    self._write_whole(f"{target}.tmp", content.raw or b"")
                    self._files.replace(f"{target}.tmp", target)
                    self._files.sync_directory(ASIDE_DIRECTORY)
            else:
                self._files.make_directory(ASIDE_DIRECTORY)
                target = self._free_name(target)
                if path == self.path and self._files.entry(self._checksums) is not None:
                    # The owner goes on without it: it is not lost to the next who looks.
                    self._files.unlink(self._checksums)
                    self._files.sync_directory(parent(self._checksums))
                self._files.replace(path, target)
                self._files.sync_directory(ASIDE_DIRECTORY)
                self._files.sync_directory(parent(path))
            kept.append(target)
        except OSError as error:
            faults.append(f"{path}: could not be kept aside: {error.strerror}")

    def _free_name(self, path: str) -> str:
        count, name = 1, path
        while self._files.entry(name) is not None:
            count += 1
            name = f"{path}.{count}"
        return name

    def _write_whole(self, path: str, raw: bytes) -> None:
        """A file of exactly `raw`, its bytes and entry durable. Replaces a left-over of a crash,
        which is there until the new one is: without it the main file would look taken away."""
        if self._files.entry(path) is not None:
            self._files.rewrite(path, len(raw), lambda file: file.write(0, raw))
            return
        self._files.create(path, len(raw), sparse=True)
        with closing(self._files.open(path, writable=True)) as file:
            file.write(0, raw)
            file.flush()


def remove_metadata(files: Files, path: str) -> None:
    """A file with all that belongs to it, the newest last. Durable on return."""
    found = [
        name for name in (f"{path}.tmp", f"{path}.previous", path) if files.entry(name) is not None
    ]
    for name in found:
        files.unlink(name)
    if found:
        files.sync_directory(parent(path))


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _seal(data: bytes) -> bytes:
    return _OPENING + _digest(data).encode() + _MIDDLE + data + _CLOSING


def _unseal(raw: bytes) -> object:
    """The data of a sealed file. Raises ValueError with what is wrong."""
    if not raw.startswith(b'{"version":'):
        raise ValueError("not a metadata file of StrataMQ")
    if not raw.startswith(_OPENING):
        raise ValueError("a version of metadata file that is not known here")
    data = raw[_DATA_AT : -len(_CLOSING)]
    if raw != _seal(data):
        raise ValueError("does not fit its checksum")
    return json.loads(data)


def _unsealed_or_none(raw: bytes) -> object:
    try:
        return _unseal(raw)
    except (ValueError, RecursionError):
        return None


def _dump_json(data: JsonObject) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()
