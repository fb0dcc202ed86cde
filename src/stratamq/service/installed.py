"""The services of this installation, found by the names of their packages, and their settings."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stratamq.errors import ConfigurationError
from stratamq.rpc.rooms import REGISTER, SERVICES
from stratamq.service.access import SECTION as ACCESS
from stratamq.service.access import AccessConfig, access_control
from stratamq.service.client_limits import SECTION as LIMITS
from stratamq.service.client_limits import LimitsConfig
from stratamq.service.config import ServiceConfig, load
from stratamq.service.file_modes import SECTION as FILES
from stratamq.service.file_modes import FilesConfig
from stratamq.service.tls import SECTION as TLS
from stratamq.service.tls import TlsConfig, server_tls
from stratamq.service.tracing import SECTION as TRACING
from stratamq.service.tracing import TracingConfig


def installed_rooms() -> list[str]:
    """In the order of their ports; a package without `__main__` is no service."""
    return [
        name
        for name in SERVICES
        if find_spec(f"stratamq_{name}") is not None
        and find_spec(f"stratamq_{name}.__main__") is not None
    ]


def missing_packages(room: str) -> list[str]:
    """The packages of the service's extra that are not installed."""
    return [one for one in REGISTER[room].packages if find_spec(one) is None]


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


SHARED: dict[str, type[Any]] = {
    TLS: TlsConfig,
    ACCESS: AccessConfig,
    LIMITS: LimitsConfig,
    TRACING: TracingConfig,
    FILES: FilesConfig,
}
"""Settings of every service of a broker, by section."""


def check_settings(
    rooms: Iterable[str], data: Path, config: Path | None, overrides: Sequence[str]
) -> None:
    """Read the settings of all services, as each will read them, before anything starts.
    ConfigurationError with every fault of every service, each once."""
    faults: list[str] = []

    def check(use: Callable[[], object]) -> None:
        try:
            use()
        except ConfigurationError as error:
            faults.extend(error.faults)

    for room in rooms:
        given = [f"{room}.root={data}", *overrides]
        check(partial(load, settings_class(room), room, config, overrides=given))
    for section, kind in SHARED.items():
        check(partial(load, kind, section, config, overrides=overrides))
    check(lambda: server_tls(load(TlsConfig, TLS, config, overrides=overrides)))
    check(lambda: access_control(load(AccessConfig, ACCESS, config, overrides=overrides), ()))
    if faults:
        first, *others = dict.fromkeys(faults)
        raise ConfigurationError([f"nothing was started: {first}", *others])
