"""Clients across a fork: in the child every call of what the parent made raises ForkedClientError.

A child has neither the threads that serve its parent's client nor the locks that they hold, and its
connections are its parent's. So in the child each object gets a class of its own whose methods
take no lock and touch no connection: calls raise, and ends return. Calls of the parent cost nothing
more for that.
"""

import ctypes
import inspect
import os
from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakSet

from stratamq.errors import ForkedClientError

_ENDS = ("close", "end", "abandon", "__exit__", "__aexit__", "_stop", "_commit")
"""Have nothing to do in a child. The last two: of `with` blocks that were entered before."""
_CALLS = ("__iter__", "__next__", "__aiter__", "__anext__", "__await__", "__enter__", "__aenter__")

_made: WeakSet[Any] = WeakSet()
"""By this process."""
_inherited: list[Any] = []
"""Kept: what gRPC has is not let go in a child, where that may wait for a thread it has not."""


def watch(made: Any) -> None:
    """In a constructor: `made` is of this process alone."""
    _made.add(made)


def _refused(*_: Any, **__: Any) -> Any:
    raise ForkedClientError(
        "this client was made before a fork, and works in the process that made it alone: make "
        "another one in this process"
    )


def _nothing(*_: Any, **__: Any) -> None:
    return None


async def _nothing_async(*_: Any, **__: Any) -> None:
    return None


@cache
def _in_child(kind: type) -> type:
    methods: dict[str, Callable[..., Any]] = {}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name in _ENDS:
            asynchronous = inspect.iscoroutinefunction(method)
            methods[name] = _nothing_async if asynchronous else _nothing
        elif name in _CALLS or not name.startswith("_"):
            methods[name] = _refused
    return type(kind.__name__, (kind,), methods)


def _leave() -> None:
    made = list(_made)
    _made.clear()
    _inherited.extend(made)
    for one in made:
        one.__class__ = _in_child(type(one))


# The interpreter's end drops what modules have, and this list must outlive it.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_inherited))
os.register_at_fork(after_in_child=_leave)
