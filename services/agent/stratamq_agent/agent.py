"""One agent's rounds: read the election's value, decide, do it."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from stratamq.election.store import ElectionStore, StoredState
from stratamq.errors import NotFoundError, NotWritableError, StrataError
from stratamq.files.port import Clock
from stratamq.formats.election_state import ElectionState, Offer, Unable
from stratamq_agent.decision import (
    SETTLED_TTLS,
    Decision,
    EndLead,
    GiveUp,
    HandOver,
    Idle,
    Name,
    Own,
    Renew,
    Seen,
    Stand,
    TakeOver,
    decide,
    is_foreign,
    required_ns,
    stays,
)
from stratamq_agent.watch import LeaseWatch

log = logging.getLogger(__name__)

GRANTED = 0.95
"""The share of the ttl that is granted: clocks may differ in their rates by the rest."""
SOON_S = 0.1
SOONEST_S = 0.05
BROKER_S = 1.0
"""Between two rounds while the broker or the store does not answer."""

Wake = Callable[[str], Awaitable[None]]
"""Tell the agent at this address to look now; it may not answer."""


class Broker(Protocol):
    """See `own_broker.OwnBroker`. StrataError."""

    async def standing(self) -> Own: ...

    async def promote(self, succeeds: str) -> int: ...

    async def demote(self) -> None: ...

    async def grant(self, term: int, until_ns: int) -> None: ...

    async def end_lead(self, term: int, until_ns: int, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """In ns and seconds."""

    ttl_ns: int
    loop_s: float


@dataclass(frozen=True, slots=True)
class View:
    """What an agent knows. `is_master`: its broker, None: not known yet. `store_problem`: why the
    value was not read last; "": it was. `broker_answers`: as of the last round."""

    member: str = ""
    is_master: bool | None = None
    state: ElectionState = field(default_factory=ElectionState)
    store_problem: str = "not read yet"
    last_action: str = ""
    broker_answers: bool = False


class Agent:
    """`run` until it is cancelled. `address`: where this agent takes calls. Of one event loop."""

    def __init__(
        self,
        store: ElectionStore,
        broker: Broker,
        clock: Clock,
        timing: Timing,
        address: Callable[[], str],
        wake_other: Wake,
    ) -> None:
        self.view = View()
        self._store = store
        self._broker = broker
        self._clock = clock
        self._timing = timing
        self._address = address
        self._wake_other = wake_other
        self._woken = asyncio.Event()
        self.watch = LeaseWatch(clock, timing.ttl_ns)
        self._refused_ns: int | None = None
        self._asked: tuple[str, int] = ("", 0)
        """The value's switchover, and when it was first seen."""
        self._able_ns: int | None = None
        """Since when its broker leads and acknowledges; None: it does not."""

    def wake(self) -> None:
        """Look now."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            pause_s = await self.round()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()
            self._woken.clear()

    async def round(self) -> float:
        """Seconds until the next one."""
        try:
            snapshot = await self._read()
        except StrataError as error:
            self._note_store(str(error))
            return min(BROKER_S, self._timing.loop_s)
        self._note_store("")
        own, problem = await self._own()
        decision = decide(own, self._seen(snapshot.state), self._timing.ttl_ns)
        self._note(Idle(problem) if problem else decision)
        self._note_ability(own, snapshot.state)
        try:
            done = await self._do(decision, own, snapshot)
        except StrataError as error:
            log.warning("not done", extra={"reason": str(error)})
            return min(BROKER_S, self._timing.loop_s)
        if not done:
            return min(SOON_S, self._timing.loop_s)
        return self._pause(decision, own)

    async def look(self) -> View:
        """What is known, with the value as it is now, if the store answers."""
        try:
            await self._read()
        except StrataError as error:
            self._note_store(str(error))
        return self.view

    async def request_switchover(self, member: str) -> None:
        """Record that `member` is to lead. NotWritableError while failover is paused, or when it
        leads already; NotFoundError for one without an agent; UnavailableError."""

        def asked(state: ElectionState) -> ElectionState:
            if state.paused:
                raise NotWritableError(
                    "failover is paused: `stratamq cluster resume` comes first", "paused"
                )
            if state.leader == member:
                raise NotWritableError(f"{member} leads already", "role")
            if member not in state.agents:
                known = ", ".join(sorted(state.agents))
                raise NotFoundError(f"no agent of a member {member!r} is known: {known}")
            if not state.leader:
                raise NotWritableError("no member leads: an election is under way", "role")
            return replace(state, switchover=member)

        state = await self._change(asked)
        await self._wake_agent(state, state.leader)

    async def set_paused(self, paused: bool) -> None:
        """Record it. UnavailableError."""
        state = await self._change(lambda state: replace(state, paused=paused))
        await self._wake_agent(state, state.leader)

    async def _change(self, change: Callable[[ElectionState], ElectionState]) -> ElectionState:
        while True:
            snapshot = await self._read()
            if snapshot.state is None:
                raise NotWritableError("no member has led this cluster yet", "role")
            following = change(snapshot.state)
            if await self._store.swap(following, snapshot.revision) is not None:
                return following

    async def _wake_agent(self, state: ElectionState, member: str) -> None:
        if member == self.view.member:
            self.wake()
        elif address := state.agents.get(member):
            await self._wake_other(address)

    # --- a round ---

    async def _read(self) -> StoredState:
        ticket = self.watch.begin()
        snapshot = await self._store.read()
        if self.watch.end(ticket, snapshot):
            log.error("the election store went back", extra={"reason": self.watch.step_back})
        self.view = replace(self.view, state=snapshot.state or ElectionState())
        return snapshot

    async def _own(self) -> tuple[Own | None, str]:
        """Or why it is not known."""
        try:
            own = await self._broker.standing()
        except StrataError as error:
            self.view = replace(self.view, broker_answers=False)
            return None, f"its broker does not answer: {error}"
        self.view = replace(
            self.view, member=own.member, is_master=own.is_master, broker_answers=True
        )
        return own, ""

    def _seen(self, state: ElectionState | None) -> Seen:
        now_ns, refused = self._clock.monotonic_ns(), self._refused_ns
        asked = state.switchover if state is not None else ""
        if asked != self._asked[0]:
            self._asked = asked, now_ns
        ago = None if refused is None else now_ns - refused
        watch = self.watch
        return Seen(
            state,
            watch.unchanged_ns,
            ago,
            now_ns - self._asked[1],
            watch.watched_ns,
            watch.step_back,
            watch.led_before,
        )

    async def _do(self, decision: Decision, own: Own | None, snapshot: StoredState) -> bool:
        """False: another changed the value meanwhile, or nothing came of it; look again soon."""
        state = snapshot.state or ElectionState()
        if own is None:
            return True
        if isinstance(decision, Renew):
            return await self._renew(decision, own, state, snapshot.revision)
        if isinstance(decision, Stand):
            return await self._stand(own, state, snapshot.revision)
        if isinstance(decision, GiveUp):
            return await self._give_up(state, snapshot.revision)
        if isinstance(decision, HandOver):
            return await self._hand_over(decision, own, state, snapshot.revision)
        if isinstance(decision, TakeOver):
            return await self._offer(own, state, snapshot.revision)
        if isinstance(decision, EndLead):
            until_ns = self._until(self._clock.monotonic_ns())
            await self._broker.end_lead(own.term, until_ns, decision.reason)
            return False
        if isinstance(decision, Name):
            return await self._name(decision.to, own, state, snapshot.revision)
        ours = snapshot.state is not None and own.member and not is_foreign(state, own)
        if ours and state.agents.get(own.member) != self._address():
            return bool(await self._swap(self._with_agent(state, own), snapshot.revision))
        return True

    async def _renew(self, decision: Renew, own: Own, state: ElectionState, revision: str) -> bool:
        sent_ns = self._clock.monotonic_ns()
        if state.leader != own.member or decision.drops_switchover:
            state = replace(state, switchover="")
        state = replace(self._led(state, own, own.term), unable=self._unable(own, state))
        if self._able_ns is not None and sent_ns - self._able_ns >= SETTLED_TTLS * self._ttl_ns:
            state = replace(state, moves=0)
        if not await self._swap(state, revision):
            return False
        await self._grant(own.term, sent_ns)
        return True

    def _unable(self, own: Own, state: ElectionState) -> Unable | None:
        """What all are told: half a ttl before another may take over."""
        if 2 * own.unable_ns < self._ttl_ns:
            return None
        reason = own.unable
        if own.unable_ns >= required_ns(state.moves, self._ttl_ns):
            reason = f"{reason}; {stays(own)}"
        ms = own.unable_ns // 1_000_000
        return Unable(reason, ms, own.waits_for, own.reach[0], own.confirmed)

    async def _offer(self, own: Own, state: ElectionState, revision: str) -> bool:
        following = replace(state, offer=Offer(own.member, *own.reach))
        if not await self._swap(following, revision):
            return False
        await self._wake_agent(following, state.leader)
        return True

    async def _name(self, to: str, own: Own, state: ElectionState, revision: str) -> bool:
        following = replace(
            state,
            leader=to,
            renewal=state.renewal + 1,
            switchover="",
            unable=None,
            offer=None,
            moves=state.moves + 1,
            succeeds=own.member,
        )
        if not await self._swap(following, revision):
            return False
        await self._wake_agent(following, to)
        return True

    async def _stand(self, own: Own, state: ElectionState, revision: str) -> bool:
        sent_ns = self._clock.monotonic_ns()
        succeeds = state.succeeds if state.leader == own.member else ""
        following = replace(self._led(state, own, own.term), switchover="", succeeds=succeeds)
        taken = await self._swap(following, revision)
        if not taken:
            return False
        try:
            term = await self._broker.promote(succeeds)
        except NotWritableError as error:
            self._refused_ns = self._clock.monotonic_ns()
            log.warning("not promoted", extra={"reason": str(error)})
            await self._give_up(following, taken)
            return True
        self.view = replace(self.view, is_master=True)
        await self._grant(term, sent_ns)
        return False

    async def _give_up(self, state: ElectionState, revision: str) -> bool:
        following = replace(
            state, leader="", renewal=state.renewal + 1, unable=None, offer=None, succeeds=""
        )
        if not await self._swap(following, revision):
            return False
        for member in state.agents:
            if member != self.view.member:
                await self._wake_agent(state, member)
        return True

    async def _hand_over(
        self, decision: HandOver, own: Own, state: ElectionState, revision: str
    ) -> bool:
        try:
            await self._broker.demote()
        except NotWritableError as error:
            self._note(Renew(f"the switchover to {decision.to} waits: {error}"))
            return await self._renew(Renew(), own, state, revision)
        self.view = replace(self.view, is_master=False)
        following = replace(state, leader=decision.to, switchover="", renewal=state.renewal + 1)
        if not await self._swap(following, revision):
            return False
        await self._wake_agent(following, decision.to)
        return True

    async def _swap(self, state: ElectionState, revision: str) -> str:
        """The new revision; "": another was first."""
        found = await self._store.swap(state, revision)
        if found is None:
            return ""
        self.watch.written(state, found)
        self.view = replace(self.view, state=state)
        return found

    async def _grant(self, term: int, sent_ns: int) -> None:
        """Grant the lease from before the value was sent: members that saw the value later wait
        longer."""
        await self._broker.grant(term, self._until(sent_ns))

    def _until(self, sent_ns: int) -> int:
        return sent_ns + int(self._ttl_ns * GRANTED)

    @property
    def _ttl_ns(self) -> int:
        return self._timing.ttl_ns

    def _led(self, state: ElectionState, own: Own, term: int) -> ElectionState:
        state = self._with_agent(state, own)
        return replace(
            state,
            leader=own.member,
            # One that has not heard of the last term yet: the value's never goes back.
            term=max(term, state.term),
            renewal=state.renewal + 1,
            members=own.members or state.members,
            unable=None,
            offer=None,
            succeeds="",
        )

    def _with_agent(self, state: ElectionState, own: Own) -> ElectionState:
        return replace(state, agents={**state.agents, own.member: self._address()})

    def _pause(self, decision: Decision, own: Own | None) -> float:
        """A candidate looks again when the silence is long enough."""
        if own is None:
            return min(BROKER_S, self._timing.loop_s)
        state = self.view.state
        if (isinstance(decision, Renew | HandOver) and state.switchover) or state.unable:
            return min(BROKER_S, self._timing.loop_s)
        if not isinstance(decision, Idle):
            return self._timing.loop_s
        if own.member and state.leader == own.member:
            # It has yet to see that the leader before it has stepped down, which may stop soon.
            return min(BROKER_S, self._timing.loop_s)
        left_s = (self._timing.ttl_ns - self.watch.unchanged_ns) / 1e9
        return (
            min(self._timing.loop_s, max(SOONEST_S, left_s))
            if left_s > 0
            else min(BROKER_S, self._timing.loop_s)
        )

    # --- what people see ---

    @property
    def problems(self) -> list[str]:
        """What is wrong with the lead, for an operator."""
        step, state, found = self.watch.step_back, self.view.state, []
        if step:
            found.append(
                f"the election store went back, and no member is promoted for a ttl: {step}"
            )
        if state.unable is not None:
            found.append(
                f"{state.leader} leads, and has acknowledged nothing for "
                f"{state.unable.ms / 1000:.0f} s: {state.unable.reason}"
            )
        return found

    def _note_ability(self, own: Own | None, state: ElectionState | None) -> None:
        leads = (
            own is not None and own.is_master and state is not None and state.leader == own.member
        )
        if own is None or not leads or 2 * own.unable_ns >= self._ttl_ns:
            self._able_ns = None
        elif self._able_ns is None:
            self._able_ns = self._clock.monotonic_ns()

    def _note(self, decision: Decision) -> None:
        action = f"{type(decision).__name__.lower()}: {decision.reason}"
        if action != self.view.last_action:
            level = logging.INFO if isinstance(decision, Idle | Renew) else logging.WARNING
            log.log(level, action)
        self.view = replace(self.view, last_action=action)

    def _note_store(self, problem: str) -> None:
        if problem != self.view.store_problem:
            if problem:
                log.warning("the election store was not read", extra={"reason": problem})
            else:
                log.info("election store reachable")
        self.view = replace(self.view, store_problem=problem)
