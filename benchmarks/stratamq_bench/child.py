"""Runs a module of this package as a process of its own and reads its one JSON object."""

import json
import subprocess
import sys
from types import TracebackType
from typing import Any

from stratamq.errors import StrataError


class Child:
    """A module that runs beside what is measured, until `finish`, or killed at the block's end."""

    def __init__(self, module: str, *arguments: object) -> None:
        self._module = module
        command = [sys.executable, "-m", f"stratamq_bench.{module}", *map(str, arguments)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        """Its next line of output. StrataError when it has ended instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.finish()
            raise StrataError(f"{self._module} ended early")
        return line.rstrip("\n")

    def finish(self, said_to_it: str | None = None) -> dict[str, Any]:
        """Wait for its end. StrataError, with its last output, when it does not end well."""
        output, errors = self._process.communicate(said_to_it)
        if self._process.returncode:
            raise StrataError(f"{self._module} failed: {errors.strip()[-2000:]}")
        return json.loads(output or "{}")

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def run(module: str, *arguments: object) -> dict[str, Any]:
    """StrataError, with the process's last output, when it does not end well."""
    with Child(module, *arguments) as process:
        return process.finish()
