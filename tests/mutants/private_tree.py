"""A copy of the tree in which tests run with a mistake planted; the work tree is never written."""

import contextlib
import enum
import multiprocessing
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TEST_LIMIT_S = 60
RUN_LIMIT_S = 240
_MARK = "MUTANT_RUN"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
_PYTEST = ("-n", "0", "-x", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider")
_PYTEST += (f"--timeout={TEST_LIMIT_S}", "--hypothesis-seed=0")
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["pytest", "hypothesis", "numpy", "xml.etree.ElementTree"])


class TestRun(enum.Enum):
    PASSED = "passed"
    FAILED = "failed"
    HUNG = "not ended in time"
    BROKEN = "nothing was tested"


@dataclass(frozen=True, slots=True)
class Run:
    outcome: TestRun
    failed: str = ""
    """The test that failed, as pytest takes it."""
    output: str = ""


class PrivateTree:
    """Tests in it import the copy's packages, in the processes that they start as well."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="stratamq-mutants-"))
        self._edits = 0
        listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.split("\0")):
            source, target = ROOT / name, self._directory / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
        packages = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        parents = dict.fromkeys(self._directory / Path(package).parent for package in packages)
        self._paths = [str(path) for path in parents]

    def __enter__(self) -> "PrivateTree":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._directory)

    def text(self, file: str) -> str:
        return (self._directory / file).read_text()

    @contextlib.contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """With `text` as the content of `file`."""
        path = self._directory / file
        original, status = path.read_bytes(), path.stat()
        self._edits += 1
        path.write_text(text)
        # Bytecode is taken for current by its source's size and time in seconds.
        os.utime(path, (self._edits, self._edits))
        try:
            yield
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def test(self, tests: Sequence[str]) -> Run:
        """Run them up to the first failure. What they leave running is killed."""
        mark = secrets.token_hex(8)
        output, status = self._directory / "mutants.out", self._directory / "mutants.status"
        status.unlink(missing_ok=True)
        arguments = (str(self._directory), self._paths, mark, output, status, [*_PYTEST, *tests])
        process = _FORKS.Process(target=_run_pytest, args=arguments)
        process.start()
        process.join(RUN_LIMIT_S)
        code = process.exitcode
        if code is None:
            process.kill()
        _kill_marked(mark)
        process.join()
        process.close()
        if code is None:
            return Run(TestRun.HUNG)
        # A process in which pytest has returned may still end by a signal, because of threads of
        # native libraries. What pytest returned counts.
        returned = status.read_text() if status.exists() else f"none, exit code {code}"
        if returned == "0":
            return Run(TestRun.PASSED)
        printed = output.read_text(errors="replace") if output.exists() else ""
        failed = _FAILED.search(printed)
        if returned != "1" or failed is None:
            return Run(TestRun.BROKEN, output=f"pytest returned {returned}: {printed[-2000:]}")
        return Run(TestRun.FAILED, failed[1])


def _run_pytest(
    directory: str, paths: list[str], mark: str, output: Path, status: Path, arguments: list[str]
) -> None:
    """In a process of its own, forked from one that has imported what takes long: pytest over the
    copy, none of whose modules has been imported yet. Its exit status is written to `status`."""
    os.chdir(directory)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.environ |= {_MARK: mark, "PYTHONPATH": os.pathsep.join(paths)}
    os.environ.pop("PYTHONPYCACHEPREFIX", None)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.path[:] = [*paths, *(path for path in sys.path if path and Path(path) != ROOT)]
    import pytest

    status.write_text(str(int(pytest.main(arguments))))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True, text=True)
    return done.stdout


def _kill_marked(mark: str) -> None:
    """Every process that was started, directly or not, with this mark in its environment."""
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{_MARK}={mark}".encode() in (directory / "environ").read_bytes():
                os.kill(int(directory.name), signal.SIGKILL)
