"""Runs a function of this package in a process of its own and reads its one JSON object.

    python -m stratamq_bench.child floors.stream sync=true seconds=10

Each NAME=VALUE is an argument of the function; a value that is not JSON is a string.
"""

import asyncio
import inspect
import json
import subprocess
import sys
from dataclasses import asdict, is_dataclass
from importlib import import_module
from typing import Any

from stratamq.errors import StrataError


class Child:
    """A function that runs beside what is measured, until `finish`; killed at the block's end."""

    def __init__(self, function: str, **arguments: object) -> None:
        self._function = function
        words = [f"{name}={json.dumps(value, default=str)}" for name, value in arguments.items()]
        command = [sys.executable, "-m", "stratamq_bench.child", function, *words]
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
            raise StrataError(f"{self._function} ended early")
        return line.rstrip("\n")

    def finish(self, said_to_it: str | None = None) -> dict[str, Any]:
        """Wait for its end. StrataError, with its last output, when it does not end well."""
        output, errors = self._process.communicate(said_to_it)
        if self._process.returncode:
            raise StrataError(f"{self._function} failed: {errors.strip()[-2000:]}")
        return json.loads(output or "{}")

    def check_running(self) -> None:
        """StrataError, with its last output, when it has ended by itself."""
        if self._process.poll() is not None:
            self.finish()
            raise StrataError(f"{self._function} ended early")

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def run(function: str, **arguments: object) -> dict[str, Any]:
    """StrataError, with the process's last output, when it does not end well."""
    with Child(function, **arguments) as process:
        return process.finish()


def _argument(word: str) -> tuple[str, object]:
    name, _, value = word.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def main() -> None:
    module, _, function = sys.argv[1].rpartition(".")
    work = getattr(import_module(f"stratamq_bench.{module}"), function)
    found = work(**dict(map(_argument, sys.argv[2:])))
    if inspect.iscoroutine(found):
        found = asyncio.run(found)
    if found is not None:
        print(json.dumps(asdict(found) if is_dataclass(found) else found))


if __name__ == "__main__":
    main()
