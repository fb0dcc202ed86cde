"""The cluster: members, terms and promises, how far slaves are, switchover; shards."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stratamq.client import AsyncClient, Drain, Election, ReplicationState
from stratamq.client.switching import Precondition, switchover_preconditions
from stratamq.errors import NotFoundError, StrataError
from stratamq.formats.log_state import LogState
from stratamq_console.other_shards import OtherShards, ShardsView
from stratamq_console.parts import PageParts
from stratamq_console.showing import role_words, span

R = TypeVar("R")
ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class MemberLine:
    """One member, as this broker's replication service and agent know it. `promised_to`: the member
    to which its term is promised."""

    name: str
    address: str
    role: str
    term: int
    end_offset: int | None
    promised_to: str
    leads: bool
    is_this: bool
    remark: str
    problem: str


@dataclass(frozen=True, slots=True)
class ClusterView:
    """`replication` None: no replication service answers; `election` None: no agent does."""

    log: LogState
    replication: ReplicationState | None
    election: Election | None
    members: tuple[MemberLine, ...]
    drain: Drain | None
    problems: tuple[str, ...]
    shards: ShardsView | None = None
    """None: there are no others, as far as the console knows."""

    @property
    def role(self) -> str:
        return role_words(self.log.role)

    @property
    def drain_words(self) -> str:
        if self.drain is Drain.LEAVING:
            return "being drained"
        return "drained" if self.drain is Drain.DRAINED else ""

    @property
    def lost_master(self) -> str:
        """What happens now that no master is there, in a sentence; "": there is one."""
        election, following = self.election, self.replication and self.replication.following
        reached = following is None or following.connected
        if election is None:
            if reached or following is None:
                return ""
            at = following.master_address or "its address"
            return f"The master is not reached at {at}. No agent runs: promote a member by hand."
        if election.paused:
            goes_on = "Failover is paused: no other member is promoted."
        else:
            goes_on = "Another member is promoted, and this page goes on with it."
        if not election.leader:
            return f"No member leads, and no message is taken. {goes_on}"
        if election.unchanged_ms > election.ttl_ms:
            since = span(election.unchanged_ms / 1000)
            return (
                f"The master {election.leader} is lost: it renewed its lead {since} ago. {goes_on}"
            )
        if reached or election.leader == election.member:
            return ""
        left = span((election.ttl_ms - election.unchanged_ms) / 1000)
        then = "" if election.paused else f" If its lead is not renewed within {left}:"
        return f"The master {election.leader} is not reached.{then} {goes_on}"


@dataclass(frozen=True, slots=True)
class SwitchoverView:
    """What holds of what a switchover to a member needs."""

    member: str
    preconditions: tuple[Precondition, ...]

    @property
    def possible(self) -> bool:
        return all(one.holds for one in self.preconditions)


def routes(parts: PageParts) -> list[BaseRoute]:
    async def show(request: Request) -> Response:
        others = parts.shards if parts.may(request, "GetReplicationStatus") else None
        view = await gather_cluster(parts.client(request), others)
        return parts.render(request, "cluster.html", view)

    async def switchover(request: Request, form: FormData) -> Response:
        client, member = parts.client(request), str(form.get("member", ""))
        view = await plan_switchover(client, member)
        if form.get("confirmed") != "yes" or not view.possible:
            return parts.render(request, "switchover.html", view)
        await client.admin.switchover(member)
        return parts.to(request, "/cluster")

    async def pause(request: Request, form: FormData) -> Response:
        await parts.client(request).admin.set_failover_paused(form.get("paused") == "yes")
        return parts.to(request, "/cluster")

    return [
        Route("/cluster", show),
        parts.action("/cluster/switchover", switchover),
        parts.action("/cluster/pause", pause),
    ]


async def gather_cluster(client: AsyncClient, others: OtherShards | None = None) -> ClusterView:
    """The log must answer; of other services a part of the page is left out. All are asked at
    once, and so are the members of all shards by `others`."""
    problems: list[str] = []
    log, replication, election, drain, shards = await asyncio.gather(
        client.log_state(),
        _asked("replication", client.admin.replication_state(), problems),
        _asked("", client.admin.election(), problems),
        _asked("", client.admin.drain(), problems),
        _no_shards() if others is None else others.gather(),
    )
    if shards is not None and not shards.beside(log.broker_name):
        shards = None
    if election is not None:
        problems += filter(None, (election.store_problem, *election.problems))
    members = tuple(member_lines(log, replication, election))
    return ClusterView(log, replication, election, members, drain, tuple(problems), shards)


async def _no_shards() -> None:
    return None


async def plan_switchover(client: AsyncClient, member: str) -> SwitchoverView:
    """UnavailableError where the broker has no agent; NotFoundError for no member."""
    election = await client.admin.election()
    if not member:
        raise NotFoundError("name the member that is to lead")
    replication = await _asked("", client.admin.replication_state(), [])
    seen = replication if replication is not None and election.leader == election.member else None
    return SwitchoverView(member, tuple(switchover_preconditions(member, election, seen)))


def member_lines(
    log: LogState, replication: ReplicationState | None, election: Election | None
) -> list[MemberLine]:
    """This broker and its peers, by name; without configured members those that agents name."""
    agents = {} if election is None else election.agents
    leader = "" if election is None else election.leader
    configured = {} if log.members is None else {one.name: one for one in log.members.members}
    peers = {} if replication is None else {one.member: one for one in replication.peers}
    lines = []
    for name in sorted({*configured, *agents, *filter(None, (*peers, log.member))}):
        peer, is_this = peers.get(name), name == log.member
        role = log.role if is_this else peer.role if peer is not None else None
        remarks = []
        if name in configured and configured[name].removed:
            remarks.append("removed by an operator")
        if log.rejoining if is_this else peer is not None and peer.rejoining:
            remarks.append("rejoining, not counted in the quorum")
        if peer is not None and peer.held:
            remarks.append("takes no messages for the time being")
        lines.append(
            MemberLine(
                name,
                configured[name].address if name in configured else agents.get(name, ""),
                role_words(role),
                log.term if is_this else peer.term if peer is not None else 0,
                log.appended_offset if is_this else peer.end_offset if peer is not None else None,
                log.promised_to if is_this else peer.promised_to if peer is not None else "",
                name == leader,
                is_this,
                "; ".join(remarks),
                "" if is_this or peer is None else peer.problem,
            )
        )
    return lines


async def _asked(what: str, question: Awaitable[R], problems: list[str]) -> R | None:
    """None for a service that does not answer in time; a problem where it should."""
    try:
        return await asyncio.wait_for(question, ANSWER_S)
    except StrataError as error:
        problems += [f"{what}: {error.message}"] if what else []
    except TimeoutError:
        problems += [f"{what}: no answer within {ANSWER_S:.0f} s"] if what else []
    return None
