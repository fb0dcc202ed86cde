"""Topics: the list, one topic, and what an operator changes: create, alter, purge, delete.

A change that takes messages away is planned first. Its form carries the plan, queue by queue, and
exactly that is done when it is confirmed, whatever has arrived meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stratamq.client import MessageType, Topic
from stratamq.client.topic_purge import QueuePurge
from stratamq.errors import InvalidRequestError
from stratamq_console.parts import PageParts
from stratamq_console.showing import segment
from stratamq_console.topic_views import ListedTopics, gather_deletion, gather_topic, gather_topics

DONE = {
    "created": "The topic was created.",
    "altered": "The topic was changed.",
    "purged": "The messages were purged: consumers get them no more.",
    "deleted": "The topic was deleted.",
}
"""What a page says after a change, by the word in its address."""
CONFIRMED = "confirmed"
MAX_PLANNED_QUEUES = 900
"""A form has less than a thousand fields."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What is asked before something is taken away. `fields` come back with the confirmation."""

    title: str
    sentence: str
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...]
    action: str
    fields: Mapping[str, str]
    button: str
    back: str
    command: str
    nothing: str = ""
    """Why there is nothing to confirm."""


def routes(parts: PageParts) -> list[BaseRoute]:
    return [
        Route("/topics", _list(parts)),
        parts.action("/topics", _create(parts)),
        Route("/topics/{topic}", _describe(parts)),
        parts.action("/topics/{topic}/alter", _alter(parts)),
        parts.action("/topics/{topic}/purge", _purge(parts)),
        parts.action("/topics/{topic}/delete", _delete(parts)),
    ]


def _list(parts: PageParts) -> Any:
    async def show(request: Request) -> Response:
        contains = request.query_params.get("q", "").strip()
        position = _number(request.query_params.get("at", "0"), "at")
        found: ListedTopics = await gather_topics(parts.client(request), contains, position)
        done = DONE.get(request.query_params.get("done", ""), "")
        view = {"page": found, "done": done, "types": list(MessageType)}
        return parts.render(request, "topics.html", view)

    return show


def _describe(parts: PageParts) -> Any:
    async def show(request: Request) -> Response:
        name = request.path_params["topic"]
        found = await gather_topic(parts.client(request), name, parts.clock.wall_ms())
        done = DONE.get(request.query_params.get("done", ""), "")
        view = {"topic": found, "done": done, "types": list(MessageType)}
        return parts.render(request, "topic.html", view)

    return show


def _create(parts: PageParts) -> Any:
    async def act(request: Request, form: FormData) -> Response:
        name = _text(form, "name")
        queues = _number(_text(form, "queues") or "4", "queues")
        wanted = Topic(
            name,
            queues,
            queues,
            _number(_text(form, "permission") or "6", "permission"),
            ordered="ordered" in form,
            message_type=_type(form) or MessageType.UNSPECIFIED,
        )
        await parts.client(request).admin.create_topic(wanted)
        return parts.to(request, f"/topics/{segment(name)}?done=created")

    return act


def _alter(parts: PageParts) -> Any:
    async def act(request: Request, form: FormData) -> Response:
        name = request.path_params["topic"]
        await parts.client(request).admin.alter_topic(
            name,
            read_queue_count=_number(_text(form, "read_queues"), "read queues"),
            write_queue_count=_number(_text(form, "write_queues"), "write queues"),
            permission=_number(_text(form, "permission"), "permission"),
            ordered="ordered" in form,
            message_type=_type(form),
        )
        return parts.to(request, f"/topics/{segment(name)}?done=altered")

    return act


def _purge(parts: PageParts) -> Any:
    async def act(request: Request, form: FormData) -> Response:
        name, client = request.path_params["topic"], parts.client(request)
        here = f"/topics/{segment(name)}"
        if CONFIRMED in form:
            await client.admin.purge_topic(name, planned(name, form))
            return parts.to(request, f"{here}?done=purged")
        before, typed = _place(form)
        plan = await client.admin.plan_purge(name, before)
        view = purge_question(name, plan, typed)
        return parts.render(request, "confirm.html", view)

    return act


def _delete(parts: PageParts) -> Any:
    async def act(request: Request, form: FormData) -> Response:
        name, client = request.path_params["topic"], parts.client(request)
        if CONFIRMED in form:
            await client.admin.delete_topic(name)
            return parts.to(request, "/topics?done=deleted")
        found = await gather_deletion(client, name)
        view = Confirmation(
            f"Delete {name}?",
            f"{found.messages} messages in {found.queues} queues can no longer be consumed, and "
            "producers are refused until the topic is created again. Retention frees the space.",
            tuple((one,) for one in found.groups),
            ("Groups that forget it",),
            f"/topics/{segment(name)}/delete",
            {},
            f"Delete {name}",
            f"/topics/{segment(name)}",
            f"stratamq topics delete {name}",
        )
        return parts.render(request, "confirm.html", view)

    return act


def purge_question(name: str, plan: list[QueuePurge], typed: str) -> Confirmation:
    """What a purge would take, queue by queue; the form has the plan."""
    changed = [one for one in plan if one.offset > one.before]
    if len(changed) > MAX_PLANNED_QUEUES:
        raise InvalidRequestError(
            f"{len(changed)} queues would change: use `stratamq topics purge {name}`"
        )
    count = sum(one.offset - one.before for one in changed)
    rows = tuple(
        (str(one.queue_id), str(one.before), str(one.offset), str(one.offset - one.before))
        for one in changed
    )
    return Confirmation(
        f"Purge {name}?",
        f"{count} messages can no longer be consumed. Groups with a smaller offset go on at the "
        "new minimum offset. Retention frees the space.",
        rows,
        ("Queue", "Minimum offset now", "Minimum offset then", "Messages"),
        f"/topics/{segment(name)}/purge",
        {f"queue-{one.queue_id}": f"{one.before}-{one.offset}" for one in changed},
        f"Purge {count} messages",
        f"/topics/{segment(name)}",
        f"stratamq topics purge {name} --before {typed}",
        nothing="" if changed else "There is nothing before that.",
    )


def planned(topic: str, form: FormData) -> list[QueuePurge]:
    """The plan that a form has. InvalidRequestError: it is none."""
    found = []
    for key, value in form.items():
        if not key.startswith("queue-"):
            continue
        queue_id = _number(key.removeprefix("queue-"), "queue")
        before, _, offset = str(value).partition("-")
        first, last = _number(before, "offset"), _number(offset, "offset")
        found.append(QueuePurge(topic, queue_id, first, last, last))
    if not found:
        raise InvalidRequestError("the form has no plan: plan the purge again")
    return found


def _place(form: FormData) -> tuple[Any, str]:
    """Where a purge ends, and how it is typed on the command line."""
    kind, value = _text(form, "kind"), _text(form, "value")
    if kind == "offset":
        return _number(value, "offset"), value
    if kind == "keep":
        number = _number(value, "messages to keep")
        return (-number, f"-{number}") if number else ("latest", "latest")
    if kind == "time":
        try:
            moment = datetime.fromisoformat(_text(form, "time"))
            moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise InvalidRequestError("the time is none: 2026-11-28T04:00, in UTC") from error
        return moment, f"@{moment.isoformat(timespec='seconds').replace('+00:00', 'Z')}"
    raise InvalidRequestError("before what? An offset, the last messages, or a time")


def _text(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidRequestError(f"{what}: {text!r} is no whole number")
    return int(text)


def _type(form: FormData) -> MessageType | None:
    text = _text(form, "type")
    try:
        return MessageType(text) if text else None
    except ValueError as error:
        raise InvalidRequestError(f"there is no type {text!r}") from error
