"""Live tail: new messages of a topic as they come."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq_console.matching import filter_of
from stratamq_console.parts import PageParts
from stratamq_console.tailing import LiveTails

FIELDS = ("topic", "tag", "key", "text", "json")


@dataclass(frozen=True, slots=True)
class TailView:
    """`query` is that of the events; "": no topic was named."""

    fields: Mapping[str, str]
    query: str
    command: str


def routes(parts: PageParts) -> list[BaseRoute]:
    tails = LiveTails(parts.clock)

    async def show(request: Request) -> Response:
        fields = _fields(request)
        filter_of(fields)
        topic = fields["topic"]
        if topic and not await parts.client(request).topics(topic):
            raise NotFoundError(f"there is no topic {topic}")
        given = {name: value for name, value in fields.items() if value}
        tag = f" --tag '{fields['tag']}'" if fields["tag"] else ""
        command = f"stratamq consume {topic or 'TOPIC'} --offset latest --follow{tag}"
        view = TailView(fields, urlencode(given) if topic else "", command)
        return parts.render(request, "live.html", view)

    async def events(request: Request) -> Response:
        fields = _fields(request)
        if not fields["topic"]:
            raise InvalidRequestError("name a topic")
        user, wanted = parts.session(request).user, filter_of(fields)
        tails.admit(user)
        events = tails.events(parts.client(request), fields["topic"], wanted, user)
        return StreamingResponse(
            events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    return [Route("/live", show), Route("/live/events", events)]


def _fields(request: Request) -> dict[str, str]:
    return {name: request.query_params.get(name, "").strip() for name in FIELDS}
