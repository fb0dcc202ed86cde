"""Which services `stratamq up` starts: by settings, and by what is installed."""

from collections.abc import Sequence
from pathlib import Path

from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, INDEX, REGISTER, TIER
from stratamq.service.arguments import given_value
from stratamq.service.installed import installed_rooms, missing_packages

OF_A_MOUNT = (COMMITLOG, DISPATCHER, INDEX, TIER)
"""A mount deletes nothing and has no slaves, because its log takes no messages."""


def selected_services(config: Path | None, overrides: Sequence[str]) -> list[str]:
    """Every service that is installed, and whose `needed_settings` have a value if there are any:
    what is not given has one where there is a well-known port."""
    if is_mount(config, overrides):
        return [room for room in installed_rooms() if room in OF_A_MOUNT]
    return [
        room
        for room in installed_rooms()
        if _is_wanted(room, config, overrides) and not missing_packages(room)
    ]


def _is_wanted(room: str, config: Path | None, overrides: Sequence[str]) -> bool:
    needed = REGISTER[room].needed_settings
    return not needed or any(_has_value(room, one, config, overrides) for one in needed)


def _has_value(room: str, name: str, config: Path | None, overrides: Sequence[str]) -> bool:
    given = given_value(room, name, config, overrides=overrides)
    return name in REGISTER[room].well_known_ports if given is None else given != ""


def is_mount(config: Path | None, overrides: Sequence[str]) -> bool:
    """Whether the broker only reads another one's tier."""
    return given_value("tier", "mounted", config, overrides=overrides) in ("true", True)


def left_out_notices(config: Path | None, overrides: Sequence[str]) -> list[str]:
    """What to install for services that are wanted, a line each."""
    if is_mount(config, overrides):
        return []
    return [
        f"{room}: left out, it needs {', '.join(missing)}: pip install 'stratamq[{room}]' "
        f"(--no-{room} hides this line)"
        for room in installed_rooms()
        if _is_wanted(room, config, overrides) and (missing := missing_packages(room))
    ]
