"""Which messages a page or a live tail is to show: by tag, key, text, and a path into JSON."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stratamq.client import ReceivedMessage
from stratamq.client.message_rows import application_properties
from stratamq.errors import CorruptionError, InvalidRequestError

LONGEST_FILTER = 500
_STEP = re.compile(r"\.?([^.\[\]=]+)|\[(\d{1,6})\]")
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class JsonPath:
    """`order.items[0].sku`, or with `=` and a value; `$.` may lead."""

    steps: tuple[str | int, ...]
    wanted: str | None = None

    def matches(self, body: bytes) -> bool:
        """False also for a body that is no JSON."""
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return False
        for step in self.steps:
            value = _inner(value, step)
            if value is _ABSENT:
                return False
        if self.wanted is None:
            return True
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return bool(shown == self.wanted)


def parse_path(text: str) -> JsonPath:
    """InvalidRequestError."""
    path, equals, wanted = text.strip().partition("=")
    path = path.strip().removeprefix("$")
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            raise InvalidRequestError(
                f"{text!r} is no JSON path: write order.items[0].sku, or order.state=paid"
            )
        steps.append(int(found[2]) if found[1] is None else found[1])
        position = found.end()
    return JsonPath(tuple(steps), wanted.strip().strip('"') if equals else None)


def _inner(value: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else _ABSENT
    return value.get(step, _ABSENT) if isinstance(value, dict) else _ABSENT


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Every part that is set must match. `tags` is judged by the broker where it can be, and here
    again; `text` is looked for in the body, the keys and the application's
    properties, in any case of letters."""

    tags: tuple[str, ...] = ()
    key: str = ""
    text: str = ""
    path: JsonPath | None = None

    def __bool__(self) -> bool:
        return bool(self.tags or self.key or self.text or self.path)

    @property
    def reads_bodies(self) -> bool:
        return bool(self.text or self.path)

    def matches(self, message: ReceivedMessage) -> bool:
        if self.tags and message.tag not in self.tags:
            return False
        if self.key and self.key not in (*message.keys, message.unique_key):
            return False
        if not self.reads_bodies:
            return True
        try:
            body = message.body
        except CorruptionError:
            return False
        if self.text and not self._has_text(message, body):
            return False
        return self.path is None or self.path.matches(body)

    def _has_text(self, message: ReceivedMessage, body: bytes) -> bool:
        wanted = self.text.lower()
        if wanted in body.decode("utf-8", "replace").lower():
            return True
        values = (*application_properties(message).values(), *message.keys)
        return any(wanted in value.lower() for value in values)


def filter_of(fields: Mapping[str, str]) -> MessageFilter:
    """A filter as a form gives it: `tag` (`a || b`), `key`, `text`, `json`. InvalidRequestError."""
    given = {name: fields.get(name, "").strip() for name in ("tag", "key", "text", "json")}
    for name, value in given.items():
        if len(value) > LONGEST_FILTER:
            raise InvalidRequestError(f"{name} has more than {LONGEST_FILTER} characters")
    tags = tuple(one.strip() for one in given["tag"].split("||") if one.strip())
    return MessageFilter(
        () if "*" in tags else tags,
        given["key"],
        given["text"],
        parse_path(given["json"]) if given["json"] else None,
    )
