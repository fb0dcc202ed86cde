"""What an export has published: a manifest for each run, and files at the paths in it.

    <out>/_exports/00000001.json              begin and end in the log, queue offsets, files; never
                                              changed
    <out>/_exports/staging/<run>/rows/        a run in the making, as Spark writes it
    <out>/_exports/staging/<run>/manifest     there when the run is complete, and its rows counted
    <out>/_exports/lock                       held while a run is under way
    <out>/topic=T/date=D/r<run>-….parquet

A complete run is published by moving its files to their places and then, last, its manifest. A run
that was broken off before its manifest was written into staging is thrown away; from then on it is
carried on by the next one, which moves what is still in staging. So each message is in exactly one
file, and a reader that uses the manifests finds every file that they name, of complete runs only.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath

from stratamq.errors import CorruptionError
from stratamq_pipeline.jobs.output_files import OutputFiles

DIRECTORY = "_exports"
STAGING = f"{DIRECTORY}/staging"
_PART = "part-"
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
class ExportManifest:
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

    def __init__(self, files: OutputFiles) -> None:
        self.files = files

    @contextmanager
    def locked(self) -> Iterator[None]:
        """BusyError when another run is under way."""
        with self.files.locked(f"{DIRECTORY}/lock"):
            yield

    def manifests(self) -> list[ExportManifest]:
        """Oldest first. CorruptionError when one is missing or unusable."""
        found = {}
        for entry in self.files.entries(DIRECTORY):
            name = _NAME.fullmatch(entry.name)
            if name is not None:
                found[int(name[1])] = self._load(_manifest(int(name[1])))
        for run in range(1, len(found) + 1):
            if run not in found:
                path = self._place(_manifest(run))
                raise CorruptionError(f"{path} is missing: later runs stand on it", path, 0)
        return [found[run] for run in sorted(found)]

    def rows(self, run: int) -> str:
        """Where Spark writes the run's files, by topic and date."""
        return f"{_staging(run)}/rows"

    def recover(self) -> bool:
        """Carry on the run that was complete, throw away what was not. True when there was one to
        carry on."""
        manifests = self.manifests()
        last = manifests[-1] if manifests else None
        if last is not None and self.files.exists(_staging(last.run)):
            self._check_places(last)
        record = f"{_staging(len(manifests) + 1)}/manifest"
        carried = self.files.exists(record)
        if carried:
            self._publish(self._load(record))
        self.files.remove(STAGING)
        return carried

    def publish(self, manifest: ExportManifest) -> None:
        """The files lie in `rows`, named as Spark names them. They and the manifest are durable on
        return."""
        self.files.sync_tree(self.rows(manifest.run))
        record = f"{_staging(manifest.run)}/manifest"
        self.files.write(record, json.dumps(asdict(manifest), indent=1))
        self._publish(manifest)

    def remove_if_unused(self) -> None:
        """When nothing was ever published or staged, and nothing else is there."""
        here = {entry.name for entry in self.files.entries()}
        own = {entry.name.partition(".")[0] for entry in self.files.entries(DIRECTORY)}
        if here == {DIRECTORY} and own <= {"lock", "staging"} and not self.files.entries(STAGING):
            self.files.remove("")

    def _publish(self, manifest: ExportManifest) -> None:
        rows = self.rows(manifest.run)
        directories = {""}
        for name in manifest.files:
            source = f"{rows}/{staged_name(name)}"
            parent = PurePosixPath(name).parent
            directories |= {str(parent), str(parent.parent)}
            if self.files.exists(source):
                self.files.rename(source, name)
        self._check_places(manifest)
        self.files.sync(sorted(directories))
        self.files.rename(f"{_staging(manifest.run)}/manifest", _manifest(manifest.run))
        self.files.sync([DIRECTORY])
        self.files.remove(STAGING)

    def _check_places(self, manifest: ExportManifest) -> None:
        for name in manifest.files:
            if not self.files.exists(name):
                path = self._place(name)
                raise CorruptionError(f"{path} is gone, and run {manifest.run} has it", path, 0)

    def _load(self, path: str) -> ExportManifest:
        try:
            data = json.loads(self.files.read(path))
            anchor = Anchor(**data.pop("anchor")) if data.get("anchor") else data.pop("anchor")
            files = tuple(data.pop("files"))
            return ExportManifest(anchor=anchor, files=files, **data)
        except (ValueError, TypeError, KeyError) as error:
            place = self._place(path)
            raise CorruptionError(f"{place} is no manifest: {error}", place, 0) from error

    def _place(self, path: str) -> str:
        return f"{self.files.shown}/{path}"


def published_name(staged: str, run: int) -> str:
    """topic=T/date=D/part-… as it is called below the export's directory."""
    path = PurePosixPath(staged)
    return str(path.with_name(f"r{run:08d}-{path.name.removeprefix(_PART)}"))


def staged_name(published: str) -> str:
    """The other way round."""
    path = PurePosixPath(published)
    return str(path.with_name(_PART + path.name.partition("-")[2]))


def _staging(run: int) -> str:
    return f"{STAGING}/{run:08d}"


def _manifest(run: int) -> str:
    return f"{DIRECTORY}/{run:08d}.json"
