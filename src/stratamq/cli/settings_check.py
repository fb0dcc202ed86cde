"""The settings of all services, read as each will read them, before anything starts."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stratamq.errors import ConfigurationError
from stratamq.service.access import SECTION as ACCESS
from stratamq.service.access import AccessConfig, access_control
from stratamq.service.client_limits import SECTION as LIMITS
from stratamq.service.client_limits import LimitsConfig
from stratamq.service.config import load
from stratamq.service.file_modes import SECTION as FILES
from stratamq.service.file_modes import FilesConfig
from stratamq.service.installed import settings_class
from stratamq.service.tls import SECTION as TLS
from stratamq.service.tls import TlsConfig, server_tls
from stratamq.service.tracing import SECTION as TRACING
from stratamq.service.tracing import TracingConfig

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
    """ConfigurationError with every fault of every service, each once."""
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
