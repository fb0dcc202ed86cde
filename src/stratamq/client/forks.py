"""Clients across a fork: in the child every call of an object that the parent made raises
ForkedClientError.

A child lacks the threads that serve its parent's client, and the locks that they hold are never
released; its connections are its parent's. So in the child each object gets another class, whose
methods take no lock and touch no connection: calls raise, and closing returns. Calls of the parent
cost nothing more, and a new method needs no code for forks.

gRPC prepares a child at a fork, except while a thread is inside gRPC, and each client keeps one
there. With the synchronous client a child's gRPC works nevertheless (25 children of 25). With the
asyncio client the child's gRPC serves its parent's connections from threads of its own, and 6
children of 24 ended by SIGSEGV, also after `close`. The client cannot prevent that: the parent logs
it before such a fork, and a new client in such a child raises.
"""

import ctypes
import inspect
import logging
import os
from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakSet

from stratamq.errors import ForkedClientError

log = logging.getLogger(__name__)

_ENDS = ("close", "end", "abandon", "__exit__", "__aexit__", "_stop", "_commit")
"""Have nothing to do in a child. The last two: of `with` blocks that were entered before."""
_CALLS = ("__iter__", "__next__", "__aiter__", "__anext__", "__await__", "__enter__", "__aenter__")
_WAY_OUT = "fork before that, or start processes by `spawn` or `forkserver`"

_made: WeakSet[Any] = WeakSet()
"""By this process."""
_inherited: list[Any] = []
"""Kept: what gRPC has is not let go in a child, where that may wait for a thread it has not."""
_asyncio = False
"""An asyncio client of this process has had a channel."""
_grpc_is_usable = True


def watch(made: Any) -> None:
    """In a constructor: `made` is of this process alone."""
    _made.add(made)


def asyncio_begins() -> None:
    """An asyncio client is about to have a channel."""
    global _asyncio
    _asyncio = True


def require_usable() -> None:
    """ForkedClientError where gRPC cannot be used: see the module."""
    if not _grpc_is_usable:
        raise ForkedClientError(
            "this process was forked from one with an asyncio client that had connected, and gRPC "
            f"cannot be used in it: {_WAY_OUT}"
        )


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


def _warn() -> None:
    if _asyncio:
        log.warning(
            "this process forks after an asyncio client of it has connected: gRPC cannot be used "
            f"in the child, which may end by a signal ({_WAY_OUT})"
        )


def _leave() -> None:
    global _asyncio, _grpc_is_usable
    made = list(_made)
    _made.clear()
    _inherited.extend(made)
    for one in made:
        one.__class__ = _in_child(type(one))
    _grpc_is_usable = _grpc_is_usable and not _asyncio
    _asyncio = False


# The interpreter's end drops what modules have, and this list must outlive it.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_inherited))
os.register_at_fork(before=_warn, after_in_child=_leave)
