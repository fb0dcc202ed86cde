"""Where is it: one message's whole life."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stratamq.client import AsyncClient, ReceivedMessage, Whereabouts
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.file_names import offset_name
from stratamq.formats.frame_fields import frame_fields
from stratamq.formats.numbers import INT32_MAX
from stratamq_console.bodies import MAX_HEX_BYTES, FieldRow, HexLine, field_rows, hex_lines
from stratamq_console.message_forms import number_of
from stratamq_console.parts import PageParts

FIELDS = ("id", "at", "topic", "queue", "offset", "key")


@dataclass(frozen=True, slots=True)
class WhereView:
    """`found` None: nothing was asked for yet. `older`: older messages have the key, too."""

    fields: Mapping[str, str]
    command: str
    found: Whereabouts | None = None
    older: bool = False
    segment_file: str = ""
    lines: tuple[HexLine, ...] = ()
    rows: tuple[FieldRow, ...] = ()
    bytes_left_out: int = 0


def routes(parts: PageParts) -> list[BaseRoute]:
    async def show(request: Request) -> Response:
        view = await gather_where(parts.client(request), request.query_params)
        return parts.render(request, "where.html", view)

    return [Route("/where", show)]


async def gather_where(client: AsyncClient, query: Mapping[str, str]) -> WhereView:
    """By id, by log offset, by queue and offset, or by key: the first that is given."""
    fields = {name: query.get(name, "").strip() for name in FIELDS}
    if not any(fields.values()):
        return WhereView(fields, "stratamq where key TOPIC KEY")
    message, older, command = await _find(client, fields)
    found = await client.lookup.where(message)
    frame, base = frame_fields(message.decode()), message.physical_offset
    return WhereView(
        fields,
        command,
        found,
        older,
        offset_name(found.log.segment),
        tuple(hex_lines(message.frame[:MAX_HEX_BYTES], frame, base)),
        tuple(field_rows(message.frame, frame, base)),
        max(0, message.size - MAX_HEX_BYTES),
    )


async def _find(
    client: AsyncClient, fields: Mapping[str, str]
) -> tuple[ReceivedMessage, bool, str]:
    """The message, whether older ones have its key, and the command that finds it."""
    lookup, topic = client.lookup, fields["topic"]
    at, queue_id = (
        number_of(fields["at"], "log offset"),
        number_of(fields["queue"], "queue", INT32_MAX),
    )
    offset = number_of(fields["offset"], "offset")
    if fields["id"]:
        return await lookup.by_id(fields["id"]), False, f"stratamq where id {fields['id']}"
    if at is not None:
        return await lookup.at(at), False, f"stratamq where offset {at} --hex"
    if topic and queue_id is not None and offset is not None:
        command = f"stratamq where queue {topic} {queue_id} {offset} --hex"
        return await lookup.in_queue(topic, queue_id, offset), False, command
    if topic and fields["key"]:
        command = f"stratamq where key {topic} {fields['key']} --hex"
        found = await client.query_key(topic, fields["key"], max_messages=1)
        if found.messages:
            return found.messages[0], found.truncated, command
        waiting = await lookup.waiting(topic, fields["key"])
        if waiting is not None:
            return waiting, False, command
        if not await client.topics(topic):
            raise NotFoundError(f"there is no topic {topic}")
        raise NotFoundError(f"no message of {topic} has the key {fields['key']}")
    raise InvalidRequestError(
        "name a message: its id, its offset in the log, topic, queue and offset, or topic and key"
    )
