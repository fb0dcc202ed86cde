"""A small ext4 volume in a file: filled to its last byte, made to fail, repaired; and system calls
of a running process that fail, or hang, by `strace`'s injection.

The volume needs root and loop devices. It is mounted with `errors=remount-ro`, as distributions
mount theirs: when the journal meets an error the kernel makes it read-only under everyone's feet.

    with failing(pid, "fdatasync", "EIO", scratch) as injection:
        until(injection.has_struck, 10)

The process runs on when the block ends; what failed has failed, and what hung is done.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stratamq_torture.processes.services import until
from stratamq_torture.trial import TrialFailedError

TOOLS = {"mkfs.ext4": "e2fsprogs", "mount": "mount", "umount": "mount", "e2fsck": "e2fsprogs"}
INSTALL = "apt-get install -y --no-install-recommends"
FILLER = "filler"
BUSY_S, LOOK_S = 30.0, 0.1
_ERRORS_CORRECTED = 1
"""e2fsck's exit code for that."""


class VolumeFailedError(TrialFailedError):
    """A tool that the trial needs did not work; the sentence holds what it wrote."""


def obstacle() -> str:
    """Why there can be no volume here; empty when there can."""
    if os.geteuid() != 0:
        return "needs root, to mount a loop device"
    if not Path("/dev/loop-control").exists():
        return "needs loop devices (modprobe loop)"
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            return f"needs {tool}: {INSTALL} {package}"
    return ""


def no_injection() -> str:
    """Why no system call can be made to fail here; empty when it can."""
    return "" if shutil.which("strace") else f"needs strace: {INSTALL} strace"


class Volume:
    """`with Volume(directory, bytes) as volume`: mounted at `volume.path`, gone at the end."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self.path = directory / "volume"
        self._image = directory / "volume.img"
        self._size_bytes = size_bytes

    def __enter__(self) -> "Volume":
        self.path.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(self._size_bytes)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self.mount()
        return self

    def __exit__(self, *_: object) -> None:
        if self.path.is_mount():
            self._unmount()
        self._image.unlink()

    def mount(self) -> None:
        _run("mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.path))

    # --- full ---

    @property
    def used_ratio(self) -> float:
        volume = os.statvfs(self.path)
        return 1 - volume.f_bavail / volume.f_blocks

    def fill(self, ratio: float) -> None:
        """Another file takes so much that `ratio` of the volume is used; 1.0: all of it."""
        volume = os.statvfs(self.path)
        free = volume.f_bavail - int((1 - ratio) * volume.f_blocks)
        if ratio < 1.0:
            if free > 0:
                self._take(free * volume.f_frsize)
            return
        step = volume.f_bavail * volume.f_frsize
        while step >= volume.f_frsize:
            if not self._take(step):
                step //= 2

    def shrink_filler(self, ratio: float) -> None:
        """The other file lets go of so much that `ratio` of the volume is used."""
        volume, filler = os.statvfs(self.path), self.path / FILLER
        excess = int((1 - ratio) * volume.f_blocks) - volume.f_bavail
        os.truncate(filler, filler.stat().st_size - excess * volume.f_frsize)

    def free(self) -> None:
        """The other file is gone."""
        (self.path / FILLER).unlink(missing_ok=True)

    def _take(self, size_bytes: int) -> bool:
        """Let the filler grow; False when there is no room for so much."""
        descriptor = os.open(self.path / FILLER, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, size_bytes)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    # --- broken ---

    def break_down(self) -> None:
        """The file system meets an error: read-only from now on, whatever is open for writing."""
        (self._sysfs() / "trigger_fs_error").write_text("torture")

    def repair(self) -> None:
        """Check and mount again. No process may have a file open on it."""
        self._unmount()
        done = subprocess.run(["e2fsck", "-fy", str(self._image)], capture_output=True, text=True)
        if done.returncode > _ERRORS_CORRECTED:
            raise VolumeFailedError(f"e2fsck ended with {done.returncode}: {done.stdout[-500:]}")
        self.mount()

    def _unmount(self) -> None:
        """The kernel lets go of a killed process's files a moment after its end."""
        busy: list[VolumeFailedError] = []

        def unmounted() -> bool:
            try:
                _run("umount", str(self.path))
            except VolumeFailedError as error:
                if "busy" not in str(error):
                    raise
                busy[:] = [error]
                return False
            return True

        if not until(unmounted, BUSY_S, LOOK_S):
            raise busy[0]

    def _sysfs(self) -> Path:
        source = _run("findmnt", "-no", "SOURCE", str(self.path)).strip()
        return Path("/sys/fs/ext4") / Path(source).name


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise VolumeFailedError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


ATTACH_S = 20.0
_HOUR_US = 3_600_000_000


class InjectionFailedError(TrialFailedError):
    """strace could not take hold of the process."""


class Injection:
    """What strace has written so far."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    @property
    def count(self) -> int:
        """How many calls have failed by it."""
        return self._trace.read_text(errors="replace").count("(INJECTED)")

    def has_struck(self) -> bool:
        return self.count > 0


@contextmanager
def failing(
    pid: int, calls: str, error: str, scratch: Path, when: str = "1+"
) -> Iterator[Injection]:
    """`calls`: one or more names, with commas. `when`: which of them, as strace has it."""
    with _injecting(pid, calls, f"error={error}:when={when}", scratch) as injection:
        yield injection


@contextmanager
def hanging(pid: int, calls: str, scratch: Path) -> Iterator[Injection]:
    """None of these calls returns before the block ends; other threads go on."""
    with _injecting(pid, calls, f"delay_enter={_HOUR_US}", scratch) as injection:
        yield injection


@contextmanager
def _injecting(pid: int, calls: str, what: str, scratch: Path) -> Iterator[Injection]:
    trace = scratch / f"strace-{pid}.txt"
    output_path = scratch / f"strace-{pid}.output"
    trace.write_bytes(b"")
    command = ["strace", "-f", "-o", str(trace), "-p", str(pid), "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:{what}"]
    with output_path.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=output)
    try:
        # It reports `attached` once it holds all threads of the process.
        attached = until(
            lambda: b"attached" in output_path.read_bytes() or process.poll() is not None, ATTACH_S
        )
        if not attached or process.poll() is not None:
            raise InjectionFailedError(f"strace did not attach: {output_path.read_text()[-300:]}")
        yield Injection(trace)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(ATTACH_S)
