"""The overview: which services run, and how well the broker is."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stratamq.client import AsyncClient
from stratamq.client.replication_state import FollowingProgress, ReplicationState
from stratamq.client.values import (
    CleaningLook,
    Election,
    FollowerServiceState,
    JanitorState,
    Retention,
    TierState,
)
from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.log_state import LogState, Role
from stratamq.rpc.rooms import (
    AGENT,
    COMMITLOG,
    CONSOLE,
    DELIVERY,
    DISPATCHER,
    ESSENTIAL,
    GATEWAY,
    HA,
    INDEX,
    JANITOR,
    SERVICES,
    TIER,
)
from stratamq_console.alarms import Alarm, firing
from stratamq_console.charts import ChartLine, lines_over_time
from stratamq_console.history import (
    BYTES_IN,
    BYTES_OUT,
    GROUPS_BEHIND,
    LAG_MESSAGES,
    MESSAGES_IN,
    MESSAGES_OUT,
    RateHistory,
)
from stratamq_console.parts import PageParts
from stratamq_console.showing import rate, role_words, size

ANSWER_S = 2.0
SHOWN_GROUPS = 5
RETENTION, PLAN = "retention", "plan"
_GROUP = re.compile(LAG_MESSAGES + r'\{group="(.*)"\}')
T = TypeVar("T")
Question = Callable[[AsyncClient], Awaitable[Any]]
READY, NOT_RUNNING = "ready", "not responding"
Detail = Callable[[Any], tuple[str, str]]
"""What a state says, and what is wrong with it; "": nothing."""


@dataclass(frozen=True, slots=True)
class ServiceLine:
    """One service: `problem` is empty while it is well."""

    name: str
    address: str
    state: str
    detail: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GroupBehind:
    """A group that has messages to read."""

    name: str
    lag: int


@dataclass(frozen=True, slots=True)
class OverviewView:
    """What the page shows. `log`, `retention` and `plan` are None where their service does not
    respond."""

    at_ms: int
    log: LogState | None
    services: tuple[ServiceLine, ...]
    retention: Retention | None
    plan: CleaningLook | None
    replication: ReplicationState | None

    @property
    def problems(self) -> list[str]:
        return [f"{one.name}: {one.problem}" for one in self.services if one.problem]

    @property
    def next_deletion(self) -> str:
        """What retention takes next, or why it takes nothing, in the janitor's words."""
        if self.plan is None:
            return "not known"
        if self.plan.deletions:
            return self.plan.deletions[0].sentence
        for one in self.plan.held:
            return one.sentence
        kept = self.plan.kept
        return "nothing to delete yet" if kept is None else f"the oldest segment; {kept.sentence}"

    @property
    def follows(self) -> FollowingProgress | None:
        """How far a slave is; None of a master."""
        return None if self.replication is None else self.replication.following

    @property
    def slaves(self) -> int:
        """Those that this master has or should have; 0 of a single broker."""
        members = None if self.log is None else self.log.members
        expected = 0 if members is None else members.count - 1
        return max(expected, 0 if self.replication is None else len(self.replication.slaves))

    @property
    def connected(self) -> int:
        return sum(one.connected for one in self.replication.slaves) if self.replication else 0

    @property
    def in_sync(self) -> int:
        """Slaves that have all that the master ships."""
        slaves = self.replication.slaves if self.replication else ()
        return sum(one.connected and not one.lag_bytes for one in slaves)


@dataclass(frozen=True, slots=True)
class OverviewMetrics:
    """What the page shows of the services' metrics. `problem`: why they cannot be read."""

    messages: Markup
    bytes: Markup
    messages_in: float | None
    messages_out: float | None
    alarms: list[Alarm]
    groups_behind: float | None
    behind: list[GroupBehind]
    problem: str
    span_s: int


def routes(parts: PageParts) -> list[BaseRoute]:
    async def show(request: Request) -> Response:
        view = await gather_overview(parts.client(request), parts.clock.wall_ms())
        # The console reads the metrics for all; those who may not read them are not shown them.
        observes = parts.may(request, "GetConsoleStatus")
        metrics = overview_metrics(parts.history, view.at_ms) if observes else None
        shown = {"of": view, "metrics": metrics}
        return parts.render(request, "overview.html", shown)

    return [Route("/", show)]


async def gather_overview(
    client: AsyncClient, at_ms: int, answer_s: float = ANSWER_S
) -> OverviewView:
    """Every service is asked at once; one that does not respond in `answer_s` is shown so."""
    known = await client.services()
    addresses = {one: known.get(one, "") for one in SERVICES if one in known or one in ESSENTIAL}
    questions = {one: QUESTIONS[one] for one in addresses}
    if JANITOR in addresses:
        questions |= {
            RETENTION: lambda client: client.admin.retention(),
            PLAN: lambda client: client.admin.plan_cleaning(),
        }
    answers = await asyncio.gather(*(_ask(client, one, answer_s) for one in questions.values()))
    states = dict(zip(questions, answers, strict=True))
    lines = tuple(_line(name, addresses[name], states[name]) for name in addresses)
    return OverviewView(
        at_ms,
        _of_kind(LogState, states.get(COMMITLOG)),
        lines,
        _of_kind(Retention, states.get(RETENTION)),
        _of_kind(CleaningLook, states.get(PLAN)),
        _of_kind(ReplicationState, states.get(HA)),
    )


def overview_metrics(history: RateHistory, at_ms: int) -> OverviewMetrics:
    latest = history.latest()
    behind = [
        GroupBehind(found[1].replace('\\"', '"'), int(lag))
        for name, lag in latest.items()
        if lag and (found := _GROUP.fullmatch(name)) is not None
    ]
    behind.sort(key=lambda one: -one.lag)
    return OverviewMetrics(
        _chart(history, "Messages", MESSAGES_IN, MESSAGES_OUT, at_ms, ""),
        _chart(history, "Bytes", BYTES_IN, BYTES_OUT, at_ms, "bytes"),
        history.rate(MESSAGES_IN),
        history.rate(MESSAGES_OUT),
        firing(latest),
        latest.get(GROUPS_BEHIND),
        behind[:SHOWN_GROUPS],
        history.problem,
        history.span_s(),
    )


def _chart(history: RateHistory, title: str, into: str, out: str, at_ms: int, unit: str) -> Markup:
    lines = (
        ChartLine("in", "in", history.rates(into)),
        ChartLine("out", "out", history.rates(out)),
    )
    return lines_over_time(title, lines, at_ms, history.span_s(), lambda value: rate(value, unit))


def _of_kind(kind: type[T], state: Any) -> T | None:
    return state if isinstance(state, kind) else None


async def _ask(client: AsyncClient, question: Question, answer_s: float) -> Any:
    """The state of a service, or its error."""
    try:
        return await asyncio.wait_for(question(client), answer_s)
    except StrataError as error:
        return error
    except TimeoutError:
        return UnavailableError(f"no answer within {answer_s:.0f} s")


def _line(name: str, address: str, state: Any) -> ServiceLine:
    if isinstance(state, UnavailableError):
        return ServiceLine(name, address, NOT_RUNNING, problem=state.message)
    if isinstance(state, StrataError):
        return ServiceLine(name, address, "not known", problem=state.message)
    detail, problem = DETAILS[name](state)
    return ServiceLine(name, address, "not well" if problem else READY, detail, problem)


def _of_log(state: LogState) -> tuple[str, str]:
    role = "no role" if state.role is None else role_words(state.role)
    is_slave = state.role is Role.SLAVE
    detail = f"{role}, term {state.term}, {'sync' if state.sync_flush else 'async'} flush"
    return detail, "" if is_slave else state.not_writable_reason


def _of_follower(parts: str) -> Detail:
    def detail(state: FollowerServiceState) -> tuple[str, str]:
        behind = max(0, state.log_confirmed_offset - state.applied_offset)
        return f"{parts}: {state.parts}, {size(behind)} behind the log", state.stopped_reason

    return detail


def _of_replication(state: ReplicationState) -> tuple[str, str]:
    following = state.following
    if following is not None:
        return f"follows {following.master_address or 'no master'}", following.problem
    connected = sum(one.connected for one in state.slaves)
    return f"slaves connected: {connected}", state.problem


def _of_janitor(state: JanitorState) -> tuple[str, str]:
    alarm = state.last.alarm if state.last is not None else ""
    return f"retention {'off' if state.disabled else 'on'}", state.failure or alarm


def _of_tier(state: TierState) -> tuple[str, str]:
    failing = f"uploads of {state.failing_queues} queues fail: {state.last_failure}"
    return f"waiting messages: {state.waiting_messages}", failing if state.failing_queues else ""


def _of_agent(state: Election) -> tuple[str, str]:
    led = f"{state.leader} leads" if state.leader else "no member leads"
    return led, "; ".join(filter(None, (state.store_problem, *state.problems)))


QUESTIONS: dict[str, Question] = {
    COMMITLOG: lambda client: client.log_state(),
    DISPATCHER: lambda client: client.admin.dispatch_state(),
    INDEX: lambda client: client.admin.index_state(),
    HA: lambda client: client.admin.replication_state(),
    JANITOR: lambda client: client.admin.janitor_state(),
    DELIVERY: lambda client: client.admin.delivery_state(),
    GATEWAY: lambda client: client.admin.gateway_state(),
    TIER: lambda client: client.admin.tier_state(),
    AGENT: lambda client: client.admin.election(),
    CONSOLE: lambda client: client.admin.console_state(),
}
"""How each registered service says how it is."""
DETAILS: dict[str, Detail] = {
    COMMITLOG: _of_log,
    DISPATCHER: _of_follower("queues"),
    INDEX: _of_follower("files"),
    HA: _of_replication,
    JANITOR: _of_janitor,
    DELIVERY: _of_follower("waiting messages"),
    GATEWAY: lambda state: (
        f"connections: {state.connections}, gRPC clients: {state.grpc_clients}",
        "",
    ),
    TIER: _of_tier,
    AGENT: _of_agent,
    CONSOLE: lambda state: (f"logged in: {state.sessions}", ""),
}
"""What is shown of each, and what is wrong with it."""
