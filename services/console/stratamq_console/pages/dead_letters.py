"""Dead letters of a shared group: look at one, send it again as it is to its group, or changed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stratamq.client import (
    AsyncClient,
    DeadLetter,
    DeadLetterReplay,
    ReceivedMessage,
)
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.topics import DEAD_LETTER_PREFIX
from stratamq_console.message_forms import copied_properties
from stratamq_console.parts import PageParts
from stratamq_console.topic_views import gather_topics

PER_PAGE = 50
AT_ONCE = 256
LOOKED_AT = 1_000
"""Dead letters that are counted for the numbers before and after."""
SHOWN_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class BuryingGroup:
    """A group whose workers have given messages up, and how many of these the log still has."""

    name: str
    letters: int


@dataclass(frozen=True, slots=True)
class BuryingView:
    """A page of such groups, as of their dead-letter topics. `next_position` 0: the last one."""

    groups: tuple[BuryingGroup, ...]
    position: int
    next_position: int


@dataclass(frozen=True, slots=True)
class LettersView:
    """A page of dead letters from an offset of their topic on. `next_offset` 0: the last one.
    `waiting`: those of the first LOOKED_AT that were not replayed."""

    group: str
    letters: tuple[DeadLetter, ...]
    begin: int
    next_offset: int
    total: int
    waiting: int
    counted_all: bool


@dataclass(frozen=True, slots=True)
class LetterView:
    """One dead letter. `text` None: the body is no text, or larger than can be changed here."""

    group: str
    letter: DeadLetter
    message: ReceivedMessage
    text: str | None
    hex_text: str
    cut: bool


@dataclass(frozen=True, slots=True)
class ReplayView:
    """Before a replay, and after it: `outcomes` empty means before."""

    group: str
    places: tuple[str, ...]
    is_all: bool
    waiting_before: int
    waiting_after: int
    outcomes: tuple[DeadLetterReplay, ...]

    @property
    def replayed(self) -> int:
        return sum(not one.refusal for one in self.outcomes)

    @property
    def refused(self) -> list[DeadLetterReplay]:
        return [one for one in self.outcomes if one.refusal]


def routes(parts: PageParts) -> list[BaseRoute]:
    path = "/groups/{group:path}/dead-letters"

    async def listed(request: Request) -> Response:
        begin = _offset(request.query_params.get("from", "0"))
        view = await gather_letters(parts.client(request), request.path_params["group"], begin)
        return parts.render(request, "dead_letters.html", view)

    async def shown(request: Request) -> Response:
        offset = _offset(request.path_params["offset"])
        view = await gather_letter(parts.client(request), request.path_params["group"], offset)
        return parts.render(request, "dead_letter.html", view)

    async def replayed(request: Request, form: FormData) -> Response:
        group, client = request.path_params["group"], parts.client(request)
        places = [one for one in form.getlist("place") if isinstance(one, str)]
        is_all = form.get("all") == "yes"
        if not places and not is_all:
            raise InvalidRequestError("choose the dead letters to replay")
        if len(places) > AT_ONCE:
            raise InvalidRequestError(f"at most {AT_ONCE} dead letters are replayed in a call")
        confirmed = form.get("confirmed") == "yes"
        if confirmed:
            parts.only_once(request, form)
        view = await replay(client, group, places, is_all, confirmed)
        return parts.render(request, "dead_letters_replay.html", view)

    async def sent(request: Request, form: FormData) -> Response:
        group, client = request.path_params["group"], parts.client(request)
        offset = _offset(request.path_params["offset"])
        body = str(form.get("body", "")).replace("\r\n", "\n")
        parts.only_once(request, form)
        view = await gather_letter(client, group, offset)
        result = await client.send(
            view.letter.origin_topic,
            body.encode(),
            tag=str(form.get("tag", "")).strip(),
            keys=str(form.get("keys", "")).split(),
            properties=copied_properties(view.message),
            flag=view.message.flag,
        )
        answer = {
            "group": group,
            "offset": offset,
            "topic": result.topic,
            "queue_id": result.queue_id,
            "queue_offset": result.queue_offset,
        }
        return parts.render(request, "dead_letter_sent.html", answer)

    return [
        _route_of_groups(parts),
        Route(path, listed),
        Route(path + "/{offset}", shown),
        parts.action(path + "/replay", replayed),
        parts.action(path + "/{offset}/send", sent),
    ]


def _route_of_groups(parts: PageParts) -> BaseRoute:
    async def burying(request: Request) -> Response:
        position = _offset(request.query_params.get("at", "0"))
        view = await gather_burying(parts.client(request), position)
        return parts.render(request, "dead_letter_groups.html", view)

    return Route("/dead-letters", burying)


async def gather_burying(client: AsyncClient, position: int = 0) -> BuryingView:
    """Groups by their dead-letter topics, in the order in which these became known."""
    found = await gather_topics(client, DEAD_LETTER_PREFIX, position)
    topics = [one.name for one in found.topics if one.name.startswith(DEAD_LETTER_PREFIX)]
    queues = await asyncio.gather(*(client.queues(name) for name in topics))
    groups = tuple(
        BuryingGroup(
            name.removeprefix(DEAD_LETTER_PREFIX),
            sum(one.max_offset - one.min_offset for one in some),
        )
        for name, some in zip(topics, queues, strict=True)
    )
    return BuryingView(groups, position, found.next_position)


async def gather_letters(client: AsyncClient, group: str, begin: int = 0) -> LettersView:
    """NotFoundError for a group that is not shared."""
    page = await client.admin.dead_letters(group, begin, PER_PAGE)
    queues = await client.queues(DEAD_LETTER_PREFIX + group)
    waiting, counted_all = await count_waiting(client, group)
    return LettersView(
        group,
        page.letters,
        begin,
        page.next_offset,
        sum(one.max_offset - one.min_offset for one in queues),
        waiting,
        counted_all,
    )


async def gather_letter(client: AsyncClient, group: str, offset: int) -> LetterView:
    """The dead letter at an offset of its topic, with its message. NotFoundError."""
    page = await client.admin.dead_letters(group, offset, 1)
    pulled = await client.pull(DEAD_LETTER_PREFIX + group, 0, offset, max_messages=1)
    if not page.letters or page.letters[0].queue_offset != offset or not pulled.messages:
        raise NotFoundError(f"the group {group} has no dead letter {offset}")
    message = pulled.messages[0]
    body = bytes(message.body)
    return LetterView(
        group,
        page.letters[0],
        message,
        _text_of(body),
        body[:SHOWN_BYTES].hex(" "),
        len(body) > SHOWN_BYTES,
    )


async def replay(
    client: AsyncClient, group: str, places: Sequence[str], is_all: bool, confirmed: bool
) -> ReplayView:
    """Hand dead letters out again, or say how many there are. All: those that were not replayed."""
    before, _ = await count_waiting(client, group)
    outcomes: tuple[DeadLetterReplay, ...] = ()
    if confirmed:
        chosen = () if is_all else places
        outcomes = await client.admin.replay_dead_letters(group, chosen, AT_ONCE)
    after, _ = await count_waiting(client, group) if confirmed else (before, True)
    return ReplayView(group, tuple(places), is_all, before, after, outcomes)


async def count_waiting(client: AsyncClient, group: str) -> tuple[int, bool]:
    """How many of the first LOOKED_AT were not replayed, and whether these are all."""
    page = await client.admin.dead_letters(group, 0, LOOKED_AT)
    return sum(not one.replays for one in page.letters), not page.next_offset


def _text_of(body: bytes) -> str | None:
    if len(body) > SHOWN_BYTES:
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    is_text = all(one.isprintable() or one in "\n\r\t" for one in text)
    return text if is_text else None


def _offset(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise InvalidRequestError(f"{text[:40]!r} is no offset")
    return int(text)
