"""Fields of a request, by name."""

from collections.abc import Mapping

from stratamq.errors import InvalidRequestError


def text(fields: Mapping[str, str], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise InvalidRequestError(f"the field {name} is missing")
    return value


def number(fields: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = fields.get(name)
    if value is None or value == "":
        if default is None:
            raise InvalidRequestError(f"the field {name} is missing")
        return default
    try:
        found = int(value)
    except ValueError as error:
        raise InvalidRequestError(f"the field {name} is {value!r:.80}, not a number") from error
    if not -(1 << 63) <= found < 1 << 63:
        raise InvalidRequestError(f"the field {name} is not a number of 64 bits")
    return found


def boolean(fields: Mapping[str, str], name: str) -> bool:
    return fields.get(name) == "true"
