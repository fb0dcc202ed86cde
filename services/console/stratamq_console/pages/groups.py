"""Consumer groups: how far each is, when retention takes what it has not read, moving it."""

import asyncio
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from markupsafe import Markup
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stratamq.client import (
    EARLIEST,
    LATEST,
    AsyncClient,
    AtTime,
    GroupMember,
    GroupQueue,
    GroupReset,
    GroupSettings,
    HeldMessages,
)
from stratamq.client.reading import Start
from stratamq.errors import (
    InvalidRequestError,
    NotFoundError,
    NotPermittedError,
    NotWritableError,
    UnavailableError,
)
from stratamq.formats.topics import DEAD_LETTER_PREFIX
from stratamq_console.charts import ChartLine, lines_over_time
from stratamq_console.history import LAG_MESSAGES, LAG_SECONDS, RateHistory
from stratamq_console.parts import PageParts
from stratamq_console.showing import count, segment, span

QUEUES_PER_PAGE = 200
SHOWN = 200
"""Queues and members of one group that a page shows: those furthest behind."""
SOON_S = 24 * 3600
PLACES = {
    "ago": "back or forward to what was stored so many hours ago",
    "time": "to a time (UTC)",
    "earliest": "to the oldest message",
    "latest": "to the end, past everything",
    "back": "to so many messages before the end",
    "offset": "to an offset, in every queue",
}


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A topic of a group. `lag_s`: the age of the oldest message that is not read, None where that
    is not known."""

    group: str
    topic: str
    queues: int
    lag: int
    lag_s: float | None
    last_commit_ms: int


@dataclass(frozen=True, slots=True)
class GroupsView:
    """A page of groups. `token` leads to the next one; "": this is the last."""

    lines: tuple[GroupLine, ...]
    token: str
    is_first: bool


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group. `settings` and `held` are those of a shared group; `dead_letters`: how many
    messages its dead-letter topic has, None where that is not known."""

    group: str
    queues: tuple[GroupQueue, ...]
    queue_count: int
    lag: int
    lag_s: float | None
    loses_in_s: float | None
    members: tuple[GroupMember, ...]
    member_count: int
    settings: tuple[GroupSettings, ...]
    held: tuple[HeldMessages, ...] | None
    dead_letters: int | None
    charts: tuple[tuple[str, Markup], ...]

    @property
    def topics(self) -> list[str]:
        return sorted({one.topic for one in self.queues})

    @property
    def is_losing(self) -> bool:
        """Soon: within SOON_S."""
        return self.loses_in_s is not None and self.loses_in_s < SOON_S

    @property
    def loses_some_day(self) -> bool:
        return self.loses_in_s is not None and math.isfinite(self.loses_in_s)

    @property
    def places(self) -> dict[str, str]:
        return PLACES


@dataclass(frozen=True, slots=True)
class ResetView:
    """What a reset would do. `fields` are those of the form, given again with the confirmation."""

    group: str
    resets: tuple[GroupReset, ...]
    reset_count: int
    members: tuple[str, ...]
    fields: dict[str, str]
    command: str

    @property
    def repeated(self) -> int:
        """Messages that are read again."""
        return sum(max(0, one.before - one.offset) for one in self.resets if one.before >= 0)

    @property
    def passed_over(self) -> int:
        """Messages that are never read."""
        return sum(max(0, one.offset - one.before) for one in self.resets if one.before >= 0)


def routes(parts: PageParts) -> list[BaseRoute]:
    async def listed(request: Request) -> Response:
        name = request.query_params.get("group", "").strip()
        if name:
            return parts.to(request, f"/groups/{segment(name)}")
        view = await gather_groups(parts.client(request), request.query_params.get("from", ""))
        return parts.render(request, "groups.html", view)

    async def described(request: Request) -> Response:
        group = request.path_params["group"]
        now_ms = parts.clock.wall_ms()
        view = await gather_group(parts.client(request), group, parts.history, now_ms)
        return parts.render(request, "group.html", view)

    async def reset(request: Request, form: FormData) -> Response:
        group, client = request.path_params["group"], parts.client(request)
        view, start = await plan_reset(client, group, form, parts.clock.wall_ms())
        if form.get("confirmed") != "yes":
            return parts.render(request, "group_reset.html", view)
        if view.members and form.get("force") != "yes":
            raise InvalidRequestError(
                f"the group {group} is in use by {', '.join(view.members)}: a reader that runs "
                "commits its own place again. Stop them, or tick the box"
            )
        resets = await client.admin.plan_group_reset(group, start, view.fields["topic"])
        await client.admin.reset_group(group, resets)
        return parts.to(request, f"/groups/{segment(group)}")

    async def delete(request: Request, form: FormData) -> Response:
        group, client = request.path_params["group"], parts.client(request)
        members = await client.group_members(group)
        if form.get("confirmed") != "yes" or members:
            queues = await client.groups(group)
            view = {"group": group, "queues": len(queues), "members": _names(members)}
            return parts.render(request, "group_delete.html", view)
        await client.admin.delete_group(group)
        if await _settings(client, group):
            await client.admin.delete_group_settings(group)
        return parts.to(request, "/groups")

    return [
        Route("/groups", listed),
        parts.action("/groups/{group:path}/reset", reset),
        parts.action("/groups/{group:path}/delete", delete),
        Route("/groups/{group:path}", described),
    ]


async def gather_groups(client: AsyncClient, token: str = "") -> GroupsView:
    """One page of all groups, a line for each topic that a group reads."""
    page = await client.groups_page(token, limit=QUEUES_PER_PAGE)
    lines = [
        _line(group, topic, list(some))
        for (group, topic), some in groupby(page.queues, lambda one: (one.group, one.topic))
    ]
    return GroupsView(tuple(lines), page.token, not token)


async def gather_group(
    client: AsyncClient, group: str, history: RateHistory, now_ms: int
) -> GroupView:
    """NotFoundError for a group that has committed nothing, has no member, and no settings."""
    # All at once: each may wait for a service that does not answer.
    queues, members, settings, letters, held = await asyncio.gather(
        client.groups(group, with_losses=True),
        client.group_members(group),
        _settings(client, group),
        _dead_letters(client, group),
        _held(client, group),
    )
    if not queues and not members and not settings:
        raise NotFoundError(f"there is no group {group}: it has not committed any offset")
    worst = sorted(queues, key=lambda one: (-one.lag, one.topic, one.queue_id))[:SHOWN]
    known = [one.loses_in_s for one in queues if one.loses_in_s is not None]
    return GroupView(
        group,
        tuple(sorted(worst, key=lambda one: (one.topic, one.queue_id))),
        len(queues),
        sum(one.lag for one in queues),
        _oldest(queues),
        min(known, default=None),
        tuple(members[:SHOWN]),
        len(members),
        tuple(settings),
        held,
        letters,
        _charts(group, history, now_ms),
    )


async def plan_reset(
    client: AsyncClient, group: str, form: FormData, now_ms: int
) -> tuple[ResetView, Start]:
    """What the form asks for, and where the group would go. InvalidRequestError says which field is
    wrong."""
    names = ("place", "value", "topic")
    fields = {name: str(form.get(name, "")).strip() for name in names}
    start, shown = start_of(fields["place"], fields["value"], now_ms)
    if fields["place"] == "ago" and isinstance(start, AtTime):
        # So long ago is another time when it is confirmed.
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=start.timestamp_ms)
        fields |= {"place": "time", "value": moment.isoformat()}
    resets = await client.admin.plan_group_reset(group, start, fields["topic"])
    members = await client.group_members(group)
    reading = [one for one in members if fields["topic"] in ("", *one.topics)]
    topic = f" --topic {shlex.quote(fields['topic'])}" if fields["topic"] else ""
    command = f"stratamq groups reset {shlex.quote(group)} --to {shown}{topic} --dry-run"
    view = ResetView(group, tuple(resets), len(resets), _names(reading), fields, command)
    return view, start


def start_of(place: str, value: str, now_ms: int) -> tuple[Start, str]:
    """A place in every queue, from the fields of the form; and as `--to` has it."""
    if place in (EARLIEST, LATEST):
        return place, place
    if place == "time":
        try:
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            shown = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        except (ValueError, OverflowError):
            raise InvalidRequestError(f"{value!r} is no time: 2027-03-12T04:00") from None
        return AtTime(round(moment.timestamp() * 1000)), f"@{shown}"
    try:
        number = float(value) if place == "ago" else int(value)
    except ValueError:
        raise InvalidRequestError(f"{value!r} is no number") from None
    if not 0 <= number < 2**63:
        raise InvalidRequestError(f"{value} is not in range")
    if place == "ago":
        at_ms = max(0, now_ms - int(timedelta(hours=min(number, 1e6)) / timedelta(milliseconds=1)))
        return AtTime(at_ms), f"@{at_ms}"
    if place == "back":
        return (-int(number), f"-{int(number)}") if number else (LATEST, LATEST)
    if place == "offset":
        return int(number), str(int(number))
    raise InvalidRequestError("choose where the group is to go on")


def _line(group: str, topic: str, queues: Sequence[GroupQueue]) -> GroupLine:
    return GroupLine(
        group,
        topic,
        len(queues),
        sum(one.lag for one in queues),
        _oldest(queues),
        max(one.last_commit_timestamp_ms for one in queues),
    )


def _oldest(queues: Sequence[GroupQueue]) -> float | None:
    """None where one that is behind is not known."""
    ages = [one.lag_s for one in queues if one.lag]
    known = [one for one in ages if one is not None]
    if len(known) < len(ages):
        return None
    return max(known, default=0.0)


def _charts(group: str, history: RateHistory, now_ms: int) -> tuple[tuple[str, Markup], ...]:
    """The lag over time of a group among the 20 with the largest, which metrics name."""
    found = []
    shows = ((LAG_MESSAGES, "Messages not read", count), (LAG_SECONDS, "Age of the oldest", span))
    for name, title, show in shows:
        values = history.values(f'{name}{{group="{group}"}}')
        if any(one.per_second is not None for one in values):
            line = ChartLine(title, "in", values)
            found.append((title, lines_over_time(title, [line], now_ms, history.span_s(), show)))
    return tuple(found)


def _names(members: Sequence[GroupMember]) -> tuple[str, ...]:
    named = [f"{one.client_id} at {one.address or 'this machine'}" for one in members[:5]]
    return (*named, f"{len(members) - 5} more") if len(members) > 5 else tuple(named)


async def _held(client: AsyncClient, group: str) -> tuple[HeldMessages, ...] | None:
    """None: the group is not shared, or no delivery service answers."""
    try:
        return tuple(await client.held_messages(group))[:SHOWN]
    except (NotFoundError, NotWritableError, UnavailableError):
        return None


async def _dead_letters(client: AsyncClient, group: str) -> int | None:
    """How many there are. None: the user may not see their topic."""
    try:
        queues = await client.queues(DEAD_LETTER_PREFIX + group)
    except NotPermittedError:
        return None
    return sum(one.max_offset - one.min_offset for one in queues)


async def _settings(client: AsyncClient, group: str) -> list[GroupSettings]:
    """Empty: the group has none, or no delivery service answers."""
    try:
        return await client.group_settings(group)
    except (NotFoundError, NotWritableError, UnavailableError):
        return []
