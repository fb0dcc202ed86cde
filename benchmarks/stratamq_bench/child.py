"""Runs a module of this package as a process of its own and reads its one JSON object."""

import json
import subprocess
import sys
from typing import Any

from stratamq.errors import StrataError


def run(module: str, *arguments: object) -> dict[str, Any]:
    """StrataError, with what the process said last, when it does not end well."""
    command = [sys.executable, "-m", f"stratamq_bench.{module}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise StrataError(f"{module} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)
