"""The volumes that a store lies on: its directory's, and those of parts that are mounts."""

import os
import weakref

from stratamq.files import system_calls
from stratamq.files.write_probe import WriteProbe
from stratamq.formats.store_paths import PARTS


class Volumes:
    def __init__(self, root: str) -> None:
        self._root = root
        self._descriptors: dict[str, int] = {}
        """One for each volume: the directory's by "", a part's by its name. Kept open: syncfs
        reports the errors since its descriptor was opened."""
        self._probes: dict[str, WriteProbe] = {"": WriteProbe(root)}
        if os.path.isdir(root):
            self._open()

    def sync(self) -> list[str]:
        """Sync all. Return those that FUSE serves, where `syncfs` does not reach the disk."""
        self._open()
        unreached = []
        for part, descriptor in self._descriptors.items():
            system_calls.sync_file_system(descriptor)
            self.probe_of(part).require_writable()
            if system_calls.is_fuse(descriptor):
                unreached.append(part)
        return unreached

    def probe_of(self, path: str) -> WriteProbe:
        part = path.partition("/")[0]
        if part not in PARTS:
            part = ""
        if part not in self._probes:
            apart = self._is_apart(part)
            self._probes[part] = WriteProbe(f"{self._root}/{part}") if apart else self._probes[""]
        return self._probes[part]

    def _open(self) -> None:
        for part in ("", *PARTS):
            if part not in self._descriptors and (not part or self._is_apart(part)):
                path = f"{self._root}/{part}"
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                weakref.finalize(self, os.close, descriptor)
                self._descriptors[part] = descriptor

    def _is_apart(self, part: str) -> bool:
        try:
            return os.stat(f"{self._root}/{part}").st_dev != os.stat(self._root).st_dev
        except FileNotFoundError:
            return False
