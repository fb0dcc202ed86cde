"""The kernel of the sources as they are now, and what a function gives with and without it."""

import importlib.util
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kernel.build import SOURCES, compile_kernel
from stratamq.errors import StrataError
from stratamq.formats import kernel


def build(directory: Path, *flags: str, sources: Path = SOURCES) -> ModuleType:
    """A kernel of these sources. The test is skipped where there is no compiler."""
    target = directory / "_kernel.abi3.so"
    failure = compile_kernel(target, *flags, sources=sources)
    if failure:
        pytest.skip(f"the kernel needs a C compiler: {failure}")
    spec = importlib.util.spec_from_file_location("stratamq._kernel", target)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def current() -> ModuleType:
    """Not the one that is installed, which may be older than the sources."""
    with tempfile.TemporaryDirectory() as directory:
        return build(Path(directory))


def outcome(native: ModuleType | None, work: Callable[[], Any]) -> Any:
    """What `work` returns or raises when this kernel is used, as plain values."""
    before, kernel.NATIVE = kernel.NATIVE, native
    try:
        return plain(work())
    except StrataError as error:
        return type(error), error.message, dict(error.fields)
    finally:
        kernel.NATIVE = before


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def agree(work: Callable[[], Any], native: ModuleType | None = None) -> Any:
    """Both ways give the same. Returns it."""
    python = outcome(None, work)
    assert outcome(native or current(), work) == python
    return python
