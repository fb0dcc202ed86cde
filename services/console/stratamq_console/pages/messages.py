"""Messages: lists of them, one as text, JSON and bytes, downloads."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from stratamq.client import AsyncClient, ReceivedMessage
from stratamq.client.message_rows import application_properties, message_row
from stratamq.client.whereabouts import DeliveryOutlook
from stratamq.errors import BusyError, InvalidRequestError, NotFoundError
from stratamq.formats.numbers import INT32_MAX
from stratamq.formats.topics import HALF_TOPIC
from stratamq_console.bodies import JsonNode, ShownBody, show_body, tree_of
from stratamq_console.decoders import BodyDecoders, Decoded
from stratamq_console.matching import filter_of
from stratamq_console.message_forms import moment_of, number_of, places_of, readable_message
from stratamq_console.parts import PageParts
from stratamq_console.searching import (
    MessagePage,
    SearchBounds,
    parse_place,
    search,
    search_key,
)
from stratamq_console.showing import segment

FIELDS = ("topic", "queue", "offset", "from", "to", "key", "tag", "text", "json")
JSON_LINES = "application/x-ndjson"
MAX_DOWNLOADS = 8
"""One user's at a time; each has a message of up to 4 MiB in memory, and its line."""
PIECE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class MessageListView:
    """`fields` is what was asked for. `page` None: nothing was."""

    fields: Mapping[str, str]
    page: MessagePage | None
    missing: str
    next_query: str
    sentence: str
    command: str
    sent: int = 0


@dataclass(frozen=True, slots=True)
class MessageView:
    message: ReceivedMessage
    properties: tuple[tuple[str, str], ...]
    body: ShownBody
    decoded: Decoded | None
    tree: JsonNode | None
    has_next: bool
    delivery: DeliveryOutlook | None
    """None: the message does not wait. One that waits is shown by the topic that it goes to."""

    @property
    def topic(self) -> str:
        return self.message.topic if self.delivery is None else self.delivery.topic

    @property
    def is_half(self) -> bool:
        return self.message.topic == HALF_TOPIC


def routes(parts: PageParts) -> list[BaseRoute]:
    decoders, downloads = BodyDecoders(parts.decoders), Downloads()

    async def show_list(request: Request) -> Response:
        query = request.query_params
        if query.get("id", "").strip():
            to = f"/where?{urlencode({'id': query['id'].strip()})}"
            return RedirectResponse(request.scope.get("root_path", "") + to, 303)
        view = await gather_messages(parts.client(request), query)
        return parts.render(request, "messages.html", view)

    async def show_one(request: Request) -> Response:
        view = await gather_message(parts.client(request), decoders, *_place(request))
        return parts.render(request, "message.html", view)

    async def download(request: Request) -> Response:
        topic, queue_id, offset = _place(request)
        message = await readable_message(parts.client(request), topic, queue_id, offset)
        user = parts.session(request).user
        return downloads.lines(user, _one(message), f"{topic}-{queue_id}-{offset}")

    async def download_selected(request: Request, form: FormData) -> Response:
        topic, client = str(form.get("topic", "")), parts.client(request)
        places = places_of([one for one in form.getlist("at") if isinstance(one, str)])
        await readable_message(client, topic, *places[0])  # an error before the first byte
        user = parts.session(request).user
        return downloads.lines(user, _each(client, topic, places), f"{topic}-{len(places)}")

    return [
        Route("/messages", show_list),
        parts.action("/messages/selected", download_selected),
        Route("/messages/{topic}/{queue}/{offset}", show_one),
        Route("/messages/{topic}/{queue}/{offset}/line", download),
    ]


def _place(request: Request) -> tuple[str, int, int]:
    given = request.path_params
    queue_id = number_of(given["queue"], "queue", INT32_MAX)
    offset = number_of(given["offset"], "offset")
    if queue_id is None or offset is None:
        raise InvalidRequestError("a message's address is /messages/TOPIC/QUEUE/OFFSET")
    return given["topic"], queue_id, offset


async def _one(message: ReceivedMessage) -> AsyncIterator[ReceivedMessage]:
    yield message


async def _each(
    client: AsyncClient, topic: str, places: Sequence[tuple[int, int]]
) -> AsyncIterator[ReceivedMessage]:
    for queue_id, offset in places:
        yield await readable_message(client, topic, queue_id, offset)


class Downloads:
    """Counts the open ones of each user. Belongs to the event loop."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()

    def lines(self, user: str, messages: AsyncIterator[ReceivedMessage], name: str) -> Response:
        """The lines that `produce --format json` takes back, one message in memory at a time.
        BusyError when the user has too many."""
        if self.open[user] >= MAX_DOWNLOADS:
            raise BusyError(f"{MAX_DOWNLOADS} downloads are running: wait for one of them", 5_000)
        attachment = f"attachment; filename*=UTF-8''{segment(name)}.jsonl"
        headers = {"Content-Disposition": attachment}
        return _Download(self.open, user, _pieces(messages), headers)


class _Download(StreamingResponse):
    """Counted while it is sent."""

    def __init__(
        self,
        counts: Counter[str],
        user: str,
        pieces: AsyncIterator[bytes],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(pieces, headers=headers, media_type=JSON_LINES)
        self._counts, self._user = counts, user
        counts[user] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._counts[self._user] -= 1
            if not self._counts[self._user]:
                del self._counts[self._user]


async def _pieces(messages: AsyncIterator[ReceivedMessage]) -> AsyncIterator[bytes]:
    """In pieces, so that no whole line waits for a browser that reads slowly."""
    async for message in messages:
        line = await asyncio.to_thread(_line, message)
        for start in range(0, len(line), PIECE_BYTES):
            yield line[start : start + PIECE_BYTES]


def _line(message: ReceivedMessage) -> bytes:
    return f"{json.dumps(message_row(message, exact=True))}\n".encode()


async def gather_messages(client: AsyncClient, query: Mapping[str, str]) -> MessageListView:
    """A page of messages, newest first. StrataError of a call, and InvalidRequestError."""
    fields = {name: query.get(name, "").strip() for name in FIELDS}
    sent = number_of(query.get("sent", ""), "sent") or 0
    if not fields["topic"]:
        if any(fields.values()):
            raise InvalidRequestError("name the topic, too: a search goes through one topic")
        return MessageListView(fields, None, "", "", "", "stratamq consume TOPIC --offset -50")
    wanted = filter_of(fields)
    bounds = SearchBounds(
        number_of(fields["queue"], "queue", INT32_MAX),
        number_of(fields["offset"], "offset"),
        moment_of(fields["from"], "from"),
        moment_of(fields["to"], "to"),
        parse_place(query.get("place", "")),
    )
    if bounds.offset is not None and bounds.queue_id is None:
        raise InvalidRequestError("an offset counts within a queue: name the queue, too")
    missing = ""
    if wanted.key:
        page, missing = await search_key(client, fields["topic"], wanted, bounds)
        if not page.looked_at and not await client.topics(fields["topic"]):
            raise NotFoundError(f"there is no topic {fields['topic']}")
    else:
        page = await search(client, fields["topic"], wanted, bounds)
    given = {name: value for name, value in fields.items() if value}
    following = urlencode({**given, "place": page.place}) if page.place else ""
    sentence = _covered(page, by_key=bool(wanted.key))
    return MessageListView(fields, page, missing, following, sentence, _command(fields), sent)


def _covered(page: MessagePage, *, by_key: bool) -> str:
    """What was looked at, and what was not."""
    if by_key:
        what = "1 message" if page.looked_at == 1 else f"{page.looked_at:,} messages"
        found = f"The index found {what} with this key"
        return f"{found}; there are older ones." if page.place else f"{found}."
    queues = "one queue" if page.queues == 1 else f"{page.queues} queues"
    text = f"Looked at the newest {page.looked_at:,} messages of {queues}"
    if page.left:
        text += f"; {page.left:,} older ones were not looked at"
    if page.stopped_early:
        text += " (a page stops after 20,000 messages or 32 MiB)"
    if page.queues_left_out:
        text += f". {page.queues_left_out:,} queues with older messages were left out: name one"
    return text + "."


def _command(fields: Mapping[str, str]) -> str:
    topic = fields["topic"]
    if fields["key"]:
        return f"stratamq query key {topic} {fields['key']}"
    if fields["from"] or fields["to"]:
        times = [f"--{name} {fields[name]}Z" for name in ("from", "to") if fields[name]]
        return f"stratamq query time {topic} {' '.join(times)}"
    queue = f" --queue {fields['queue']}" if fields["queue"] else ""
    tag = f" --tag '{fields['tag']}'" if fields["tag"] else ""
    return f"stratamq consume {topic} --offset -50{queue}{tag}"


async def gather_message(
    client: AsyncClient, decoders: BodyDecoders, topic: str, queue_id: int, offset: int
) -> MessageView:
    """One message. NotFoundError when consumers cannot read it."""
    message = await readable_message(client, topic, queue_id, offset)
    body, decoded = await asyncio.to_thread(_shown, message, decoders)
    queues, delivery = await asyncio.gather(client.queues(topic), client.lookup.delivery(message))
    end = next((one.max_offset for one in queues if one.queue_id == queue_id), 0)
    tree = None
    if decoded is not None and not decoded.problem:
        tree = await asyncio.to_thread(tree_of, decoded.value)
    own = application_properties(message)
    others = {name: value for name, value in message.properties.items() if name not in own}
    properties = (*sorted(own.items()), *sorted(others.items()))
    return MessageView(message, properties, body, decoded, tree, offset + 1 < end, delivery)


def _shown(message: ReceivedMessage, decoders: BodyDecoders) -> tuple[ShownBody, Decoded | None]:
    """Beside the event loop: a body may have 4 MiB, and more when decompressed."""
    body = show_body(message)
    if body.problem:
        return body, None
    return body, decoders.decode(message.topic, message.body)
