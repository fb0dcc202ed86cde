"""Real mounts for tests, which are skipped where mounting is not permitted."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(*arguments: str, at: Path) -> Iterator[None]:
    """`mount ARGUMENTS at`, undone at the end."""
    at.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(["mount", *arguments, at], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"mounting is not permitted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


@contextmanager
def part_mounted(kind: str, at: Path, elsewhere: Path) -> Iterator[None]:
    """A part of a store as `bind`, of the same file system, or `tmpfs`, of another."""
    elsewhere.mkdir(parents=True, exist_ok=True)
    arguments = {"bind": ("--bind", str(elsewhere)), "tmpfs": ("-t", "tmpfs", "none")}[kind]
    with mounted(*arguments, at=at):
        yield
