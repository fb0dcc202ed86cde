"""How values are shown: numbers with units, times in UTC that a script makes local."""

import shlex
from datetime import UTC, datetime
from urllib.parse import quote

from markupsafe import Markup

from stratamq.formats.log_state import Role
from stratamq.formats.topic_types import MessageType

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_EXACT_BYTES = 10
DASH = "–"


def count(value: float | None) -> str:
    """A whole number, with thin spaces between thousands."""
    return DASH if value is None else f"{round(value):,}".replace(",", "\u202f")


def size(value: float | None) -> str:
    """Bytes, in the unit in which they have up to four digits."""
    if value is None:
        return DASH
    number, unit = float(value), 0
    while abs(number) >= _STEP and unit < len(_BYTES) - 1:
        number, unit = number / _STEP, unit + 1
    digits = 1 if unit and abs(number) < _EXACT_BYTES else 0
    return f"{number:.{digits}f} {_BYTES[unit]}"


def rate(value: float | None, unit: str = "") -> str:
    """Something a second."""
    if value is None:
        return DASH
    text = (
        size(value)
        if unit == "bytes"
        else f"{value:.2f}"
        if 0 < value < 1
        else f"{value:.1f}"
        if 0 < value < 10
        else count(value)
    )
    return f"{text}/s"


def span(seconds: float | None) -> str:
    """A duration, in its two largest units."""
    if seconds is None:
        return DASH
    left, parts = abs(seconds), []
    for length_s, name in _SPANS:
        number, left = divmod(left, length_s)
        if number:
            parts.append(f"{int(number)} {name}")
    if not parts:
        return f"{left:.1f} s" if 0 < left < 10 else f"{left:.0f} s"
    return " ".join(parts[:2])


def share(value: float | None) -> str:
    return DASH if value is None else f"{value:.0%}"


def percent(value: float | None) -> str:
    """A share that may be small."""
    return DASH if value is None else f"{value:.1%}"


def plain_moment(wall_ms: int) -> str:
    """A time for a text that no script changes."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def moment(wall_ms: int | None) -> Markup | str:
    """A time: UTC, which `page.js` makes local."""
    if not wall_ms or wall_ms < 0:
        return DASH
    try:
        time = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms} ms"
    shown = time.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" title="{} UTC">{} UTC</time>').format(
        time.isoformat(timespec="milliseconds").replace("+00:00", "Z"), shown, shown
    )


PERMISSIONS = {6: "read and write", 4: "read", 2: "write", 0: "none"}


def permission(value: int) -> str:
    """A topic's permission, RocketMQ's number."""
    return PERMISSIONS.get(value & 6, str(value))


def message_type(value: MessageType) -> str:
    return "every type" if value is MessageType.UNSPECIFIED else value.value


def role_words(role: Role | None) -> str:
    return "not known" if role is None else role.name.replace("_", " ").lower()


def segment(value: object) -> str:
    """A name as one segment of a path."""
    return quote(str(value), safe="")


FILTERS = {
    "count": count,
    "size": size,
    "rate": rate,
    "span": span,
    "share": share,
    "moment": moment,
    "percent": percent,
    "segment": segment,
    "shell": shlex.quote,
    "permission": permission,
    "message_type": message_type,
    "role": role_words,
}
