"""The overview: which services run, and how well the broker is."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stratamq.client import AsyncClient
from stratamq.client.replication_state import ReplicationState
from stratamq.client.values import (
    ConsoleState,
    Election,
    FollowerServiceState,
    GatewayState,
    JanitorState,
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
from stratamq_console.parts import PageParts
from stratamq_console.showing import size

ANSWER_S = 2.0
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
class OverviewView:
    """What the page shows. `log` None: the log does not respond."""

    broker: str
    log: LogState | None
    services: tuple[ServiceLine, ...]

    @property
    def problems(self) -> list[str]:
        return [f"{one.name}: {one.problem}" for one in self.services if one.problem]


def routes(parts: PageParts) -> list[BaseRoute]:
    async def show(request: Request) -> Response:
        view = await gather_overview(parts.client(request))
        return parts.render(request, "overview.html", view)

    return [Route("/", show)]


async def gather_overview(client: AsyncClient, answer_s: float = ANSWER_S) -> OverviewView:
    """Every service is asked at once; one that does not respond in `answer_s` is shown so."""
    known = await client.services()
    addresses = {one: known.get(one, "") for one in SERVICES if one in known or one in ESSENTIAL}
    states = dict(
        zip(
            addresses,
            await asyncio.gather(*(_ask(client, one, answer_s) for one in addresses)),
            strict=True,
        )
    )
    lines = tuple(_line(name, addresses[name], states[name]) for name in addresses)
    log = states.get(COMMITLOG)
    if not isinstance(log, LogState):
        return OverviewView("", None, lines)
    return OverviewView(log.broker_name, log, lines)


async def _ask(client: AsyncClient, name: str, answer_s: float) -> Any:
    """The state of a service, or its error."""
    try:
        return await asyncio.wait_for(QUESTIONS[name](client), answer_s)
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
    role = state.role.name if state.role else "no role"
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


def _of_gateway(state: GatewayState) -> tuple[str, str]:
    return f"connections: {state.connections}, gRPC clients: {state.grpc_clients}", ""


def _of_tier(state: TierState) -> tuple[str, str]:
    failing = f"uploads of {state.failing_queues} queues fail: {state.last_failure}"
    return f"waiting messages: {state.waiting_messages}", failing if state.failing_queues else ""


def _of_agent(state: Election) -> tuple[str, str]:
    led = f"{state.leader} leads" if state.leader else "no member leads"
    return led, "; ".join(filter(None, (state.store_problem, *state.problems)))


def _of_console(state: ConsoleState) -> tuple[str, str]:
    return f"logged in: {state.sessions}", ""


QUESTIONS: dict[str, Callable[[AsyncClient], Awaitable[Any]]] = {
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
    GATEWAY: _of_gateway,
    TIER: _of_tier,
    AGENT: _of_agent,
    CONSOLE: _of_console,
}
"""What is shown of each, and what is wrong with it."""
