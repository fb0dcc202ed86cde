"""Chooses what does the work of every frame: the kernel in C, or the Python beside each call of it.

The kernel is `stratamq._kernel` (kernel/README.md, decision 087). It is there when the package was
installed with a C compiler. `STRATAMQ_KERNEL=python` switches it off. Both give the same results
and the same errors, which a test holds.

A function that has a kernel asks `NATIVE` each time: a test puts another there.
"""

import importlib
import os
from types import ModuleType

VERSION = 6
"""The version of the functions that are called here. A kernel of another was built before."""
_VARIABLE = "STRATAMQ_KERNEL"


def choose(wanted: str, found: ModuleType | None) -> tuple[ModuleType | None, str]:
    """The kernel to use, and what `stratamq --version` says about it.

    `wanted` is what the environment says, `found` what was built.
    """
    if wanted == "python":
        return None, f"Python, because {_VARIABLE} says so"
    if found is None:
        return None, "Python; for the one in C install gcc, Python's headers and stratamq again"
    if found.VERSION != VERSION:
        why = f"the one in C has version {found.VERSION}, not {VERSION}"
        return None, f"Python; {why}: install stratamq again"
    return found, "C"


def _built() -> ModuleType | None:
    try:
        return importlib.import_module("stratamq._kernel")
    except ImportError:
        return None


NATIVE, CHOICE = choose(os.environ.get(_VARIABLE, ""), _built())
