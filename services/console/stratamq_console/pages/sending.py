"""Messages that are sent from the console: one that is typed, or a selection again."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stratamq.client import AsyncClient, ReceivedMessage, SendResult
from stratamq.errors import InvalidRequestError, StrataError
from stratamq_console.message_forms import copy_to, places_of, readable_message, typed_message
from stratamq_console.parts import PageParts

SENT_FIELDS = ("topic", "body", "encoding", "tag", "keys", "properties", "queue")


@dataclass(frozen=True, slots=True)
class SendView:
    """`fields` is what was typed; `result` is there once it is stored."""

    fields: Mapping[str, str]
    result: SendResult | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ResendPlan:
    """What sending a selection again would do. `exists`: the target is a topic."""

    topic: str
    target: str
    places: tuple[str, ...]
    count: int
    size: int
    exists: bool


def routes(parts: PageParts) -> list[BaseRoute]:
    async def show_form(request: Request) -> Response:
        fields = {name: request.query_params.get(name, "") for name in SENT_FIELDS}
        return parts.render(request, "send.html", SendView(fields))

    async def send(request: Request, form: FormData) -> Response:
        parts.only_once(request, form)
        fields = {name: _text(form, name) for name in SENT_FIELDS}
        try:
            result = await parts.client(request).send_message(typed_message(fields))
        except StrataError as error:
            return parts.render(request, "send.html", SendView(fields, None, error.message), 400)
        return parts.render(request, "send.html", SendView(fields, result))

    async def plan(request: Request, form: FormData) -> Response:
        view = await plan_resend(parts.client(request), *_selection(form))
        return parts.render(request, "resend.html", view)

    async def resend(request: Request, form: FormData) -> Response:
        parts.only_once(request, form)
        topic, target, places = _selection(form)
        count = await send_again(parts.client(request), topic, target, places)
        return parts.to(request, f"/messages?{urlencode({'topic': target, 'sent': count})}")

    return [
        Route("/send", show_form),
        parts.action("/send", send),
        parts.action("/resend/plan", plan),
        parts.action("/resend", resend),
    ]


def _text(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def _selection(form: FormData) -> tuple[str, str, list[tuple[int, int]]]:
    target = _text(form, "target").strip()
    if not target:
        raise InvalidRequestError("name the topic to send the selection to")
    places = places_of([one for one in form.getlist("at") if isinstance(one, str)])
    return _text(form, "topic"), target, places


async def _each(
    client: AsyncClient, topic: str, places: list[tuple[int, int]]
) -> list[ReceivedMessage]:
    return [await readable_message(client, topic, *place) for place in places]


async def plan_resend(
    client: AsyncClient, topic: str, target: str, places: list[tuple[int, int]]
) -> ResendPlan:
    """A dry run: reads the messages, and changes nothing."""
    size = 0
    for place in places:
        size += len((await readable_message(client, topic, *place)).body)
    exists = bool(await client.topics(target))
    texts = tuple(f"{queue_id}.{offset}" for queue_id, offset in places)
    return ResendPlan(topic, target, texts, len(places), size, exists)


async def send_again(
    client: AsyncClient, topic: str, target: str, places: list[tuple[int, int]]
) -> int:
    """Send them one after the other, the oldest of the selection first. Returns how many were sent;
    an error says how many were stored before it."""
    done = 0
    for queue_id, offset in reversed(places):
        try:
            message = await readable_message(client, topic, queue_id, offset)
            await client.send_message(copy_to(target, message))
        except StrataError as error:
            raise type(error)(
                f"{done} of {len(places)} messages were sent to {target}, then: {error.message}"
            ) from error
        done += 1
    return done
