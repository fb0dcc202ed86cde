"""The driver's side of the forgetful disk: mount it, take its power away, unmount it for good."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from stratamq_torture.processes.services import until
from stratamq_torture.trial import TrialFailedError

UNMOUNT_S = 20.0
DEVICE = Path("/dev/fuse")


@cache
def missing() -> str:
    """Why there can be no forgetful disk here; empty when there can. Tries one, once."""
    if not (DEVICE.exists() and os.access(DEVICE, os.R_OK | os.W_OK)):
        return f"{DEVICE} is not there or may not be opened (in a container: --device {DEVICE})"
    if shutil.which("fusermount3") is None:
        return "fusermount3 is missing: apt-get install -y --no-install-recommends fuse3"
    if importlib.util.find_spec("mfusepy") is None:
        return 'mfusepy is missing: pip install "stratamq[dev]"'
    try:
        with ForgetfulDisk():
            return ""
    except DiskFailedError as error:
        return f"FUSE cannot be used here (in a container: --cap-add SYS_ADMIN): {error}"


class DiskFailedError(TrialFailedError):
    """The forgetful disk's process did not do what was asked for."""


class ForgetfulDisk:
    """`with ForgetfulDisk() as disk`: an empty file system at `disk.mountpoint`."""

    def __init__(self) -> None:
        self.mountpoint = Path(tempfile.mkdtemp(prefix="stratamq-forgetful-"))
        self._process: subprocess.Popen[str] | None = None

    def lose_power(self, keep: str, seed: int) -> dict[str, int]:
        """`keep` nothing, everything or a random part of what was not synced; the disk is mounted
        again on return. Returns what was at stake: numbers of pages, sizes and directory entries.

        Every process that had files open must be dead.
        """
        self._unmount()
        self._send({"keep": keep, "seed": seed})
        at_stake = self._answer()
        self._wait_mounted()
        return at_stake

    def refuse(self, path: Path, begin: int, end: int) -> None:
        """Bytes of a file below the mountpoint that can no longer be read from the disk (EIO), in
        place of those refused before. What the kernel's page cache has of the file goes."""
        name = path.relative_to(self.mountpoint).as_posix()
        self._send({"refuse": name, "begin": begin, "end": end})
        if self._answer() != {"refused": True}:
            raise DiskFailedError("the forgetful disk refuses nothing")
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def __enter__(self) -> "ForgetfulDisk":
        command = [sys.executable, "-m", "stratamq_torture.processes.forgetful_disk"]
        self._process = subprocess.Popen(
            [*command, str(self.mountpoint)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self._wait_mounted()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        process = self._running
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(UNMOUNT_S)
        except subprocess.TimeoutExpired:
            # A process holds a file; the mount has left the tree, and ends with the process.
            process.kill()
            process.wait()
        process.stdout.close()
        self.mountpoint.rmdir()

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def _unmount(self) -> None:
        def unmounted() -> bool:
            # Busy as long as the kernel still tears down the last process that was killed.
            done = subprocess.run(
                ["fusermount3", "-u", str(self.mountpoint)], check=False, capture_output=True
            )
            return done.returncode == 0

        if not until(unmounted, UNMOUNT_S):
            raise DiskFailedError(f"{self.mountpoint} stays busy")

    def _wait_mounted(self) -> None:
        if self._answer() != {"mounted": True}:
            raise DiskFailedError("the forgetful disk did not mount")
        if not until(self.mountpoint.is_mount, UNMOUNT_S):
            raise DiskFailedError(f"{self.mountpoint} is no mount")

    def _send(self, value: dict[str, Any]) -> None:
        pipe = self._running.stdin
        assert pipe is not None
        pipe.write(json.dumps(value) + "\n")
        pipe.flush()

    def _answer(self) -> dict[str, Any]:
        pipe = self._running.stdout
        assert pipe is not None
        line = pipe.readline()
        if not line:
            raise DiskFailedError("the forgetful disk ended")
        answer: dict[str, Any] = json.loads(line)
        return answer
