"""A job's output directory: made beside its place under another name, and renamed when it is whole.

<out>.partial/job.json     what is being made; another job's left-overs are removed
<out>.partial/made/        what will be <out>
<out>.partial/stages/      finished stages, each a file; a job begun again passes them over
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stratamq.errors import InvalidRequestError

SUFFIX = ".partial"


class Target:
    """InvalidRequestError when `out` is there already: a job never changes what is published."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.partial = out.with_name(out.name + SUFFIX)
        self.made = self.partial / "made"
        self._stages = self.partial / "stages"
        if out.exists() or out.is_symlink():
            raise InvalidRequestError(f"{out} is there already: name a fresh directory")
        if not out.parent.is_dir():
            raise InvalidRequestError(f"there is no directory {out.parent}")

    def begin(self, job: Mapping[str, Any]) -> bool:
        """True when an earlier run of exactly this job goes on."""
        wanted = json.dumps(job, sort_keys=True)
        record = self.partial / "job.json"
        if record.is_file() and record.read_text(encoding="utf-8") == wanted:
            return True
        if self.partial.exists():
            shutil.rmtree(self.partial)
        self._stages.mkdir(parents=True)
        self.made.mkdir()
        write_synced(record, wanted)
        return False

    def finished(self, stage: str) -> Any:
        """What the stage gave; None when it has not been finished."""
        path = self._stages / f"{stage}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def finish(self, stage: str, result: Any) -> None:
        """`result` is JSON, and not None. What the stage made must be synced."""
        write_synced(self._stages / f"{stage}.json", json.dumps(result))

    def publish(self) -> None:
        """Everything made is durable on return, under the name `out`."""
        sync_tree(self.made)
        os.rename(self.made, self.out)
        sync(self.out.parent)
        shutil.rmtree(self.partial)


def write_synced(path: Path, text: str) -> None:
    """Replace a small file as a whole, durably."""
    partial = path.with_name(path.name + ".tmp")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    sync(path.parent)


def sync_tree(root: Path) -> None:
    """Every file and directory below `root`, and itself."""
    for directory, _, names in os.walk(root):
        for name in names:
            sync(Path(directory) / name)
        sync(Path(directory))


def sync(path: Path) -> None:
    """A file or a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
