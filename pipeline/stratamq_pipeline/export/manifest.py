"""What an export has published: a manifest for each run, and files that lie where it says.

    <out>/_exports/00000001.json      begin and end in the log, queue offsets, files; never changed
    <out>/_exports/staging/<run>/     a run in the making
    <out>/_exports/lock               held while a run is under way
    <out>/topic=T/date=D/r<run>-….parquet

A run is published at the moment its manifest has its name, whole or not at all. Then its files are
moved to their places; a run that was broken off in between is carried on by the next one, which
moves what still lies in staging. Staging without a manifest is thrown away. So each message lies in
exactly one file, and whoever reads by the manifests never sees half a run.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from stratamq.errors import BusyError, CorruptionError
from stratamq_pipeline.jobs.target import sync, sync_tree, write_synced

DIRECTORY = "_exports"
_NAME = re.compile(r"(\d{8})\.json", re.ASCII)

QueueOffsets = dict[str, dict[str, tuple[int, int]]]
"""By topic and queue id: the first queue offset and the one behind the last."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The last message that was exported, by which the log is known again."""

    physical_offset: int
    size: int
    body_crc: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Log offsets [begin, end). `gap_from`: where the log should have begun, when retention had
    taken what came before `begin`."""

    run: int
    begin: int
    end: int
    messages: int
    files: tuple[str, ...]
    queues: QueueOffsets
    selection: dict[str, object]
    anchor: Anchor | None
    gap_from: int | None = None


class ExportDirectory:
    """One export. Use it within `locked`."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._own = out / DIRECTORY

    @contextmanager
    def locked(self) -> Iterator[None]:
        """BusyError when another run is under way."""
        self._own.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(f"another export to {self.out} is under way") from None
            yield
        finally:
            os.close(descriptor)

    def manifests(self) -> list[Manifest]:
        """Oldest first. CorruptionError when one is missing or unusable."""
        found = {}
        for path in self._own.iterdir() if self._own.is_dir() else ():
            name = _NAME.fullmatch(path.name)
            if name is not None:
                found[int(name[1])] = _load(path)
        for run in range(1, len(found) + 1):
            if run not in found:
                path = self._manifest(run)
                raise CorruptionError(f"{path} is missing: later runs stand on it", str(path), 0)
        return [found[run] for run in sorted(found)]

    def staging(self, run: int) -> Path:
        return self._own / "staging" / f"{run:08d}"

    def recover(self, manifests: list[Manifest]) -> bool:
        """Carry on what was published and not moved, throw away what was not published. True when
        there was a run to carry on."""
        carried = False
        for manifest in manifests:
            staging = self.staging(manifest.run)
            if staging.is_dir():
                carried = True
                self._move(manifest)
        staging = self._own / "staging"
        if staging.is_dir():
            shutil.rmtree(staging)
        return carried

    def publish(self, manifest: Manifest) -> None:
        """The files lie in `staging`, under the names they will have below `out`."""
        staging = self.staging(manifest.run)
        sync_tree(staging)
        write_synced(self._manifest(manifest.run), json.dumps(asdict(manifest), indent=1))
        self._move(manifest)

    def _move(self, manifest: Manifest) -> None:
        staging = self.staging(manifest.run)
        directories = {self.out}
        for name in manifest.files:
            source, place = staging / name, self.out / name
            place.parent.mkdir(parents=True, exist_ok=True)
            directories |= {place.parent, place.parent.parent}
            if source.exists():
                os.rename(source, place)
            elif not place.exists():
                path = str(place)
                raise CorruptionError(f"{path} is gone, and run {manifest.run} says it", path, 0)
        for directory in directories:
            sync(directory)
        shutil.rmtree(staging)
        if not any(staging.parent.iterdir()):
            staging.parent.rmdir()

    def _manifest(self, run: int) -> Path:
        return self._own / f"{run:08d}.json"


def _load(path: Path) -> Manifest:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        anchor = Anchor(**data.pop("anchor")) if data.get("anchor") else data.pop("anchor")
        files = tuple(data.pop("files"))
        return Manifest(anchor=anchor, files=files, **data)
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptionError(f"{path} is no manifest: {error}", str(path), 0) from error
