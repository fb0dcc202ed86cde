"""The settings of all services, read as each will read them, before anything starts."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from stratamq.errors import ConfigurationError
from stratamq.service.config import load
from stratamq.service.installed import settings_class


def check_settings(
    rooms: Iterable[str], data: Path, config: Path | None, overrides: Sequence[str]
) -> None:
    """ConfigurationError with every fault of every service, each once."""
    faults: list[str] = []
    for room in rooms:
        try:
            load(settings_class(room), room, config, overrides=[f"{room}.root={data}", *overrides])
        except ConfigurationError as error:
            faults += error.faults
    if faults:
        first, *others = dict.fromkeys(faults)
        raise ConfigurationError([f"nothing was started: {first}", *others])
