"""The services of this installation, found by the names of their packages."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from stratamq.rpc.rooms import SERVICES
from stratamq.service.config import ServiceConfig


def installed_rooms() -> list[str]:
    """In the order of their ports; a package without `__main__` is no service."""
    return [
        name
        for name in SERVICES
        if find_spec(f"stratamq_{name}") is not None
        and find_spec(f"stratamq_{name}.__main__") is not None
    ]


def settings_class(room: str) -> type[ServiceConfig]:
    """The dataclass of an installed service's settings, which its `config` module defines."""
    module = import_module(f"stratamq_{room}.config")
    (found,) = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, ServiceConfig)
        and value.__module__ == module.__name__
    ]
    return found


def delivery_audit() -> Any:
    """The module that checks what the delivery service did by a store's files."""
    return import_module("stratamq_delivery.audit")


def past_states() -> Any:
    """The module that computes the state of the delivery service from a store's files."""
    return import_module("stratamq_delivery.past")
