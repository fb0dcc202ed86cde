"""One seed: agents, their brokers, a store whose answers are lost, late or doubled, and what
happens to them. At any moment at most one master answers; no message is lost that may not be; in
the end, when everything works again, exactly one master answers, and leads."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from stratamq_agent.agent import Agent, Timing
from stratamq_agent.decision import Own, Seen
from stratamq_commitlog.replica.ability import Ability

from stratamq.election.store import ABSENT, StoredState
from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.election_state import ElectionState
from stratamq_torture.agents.brokers import Cluster, Impatient, Reached, SimulatedBroker
from stratamq_torture.trial import Outcome, SeedsTrial, Violation, VirtualLoop, VirtualRun

LATE_S = (0.5, 5.0, 40.0)


@dataclass(frozen=True, slots=True)
class Odds:
    """The odds of one call. `late`: it takes effect long after its caller has given up; `doubled`:
    it arrives a second time, later."""

    fail: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    slow: float = 0.0


class SimulatedStore:
    """One for all agents of a trial."""

    def __init__(self, chance: random.Random, odds: Odds, timeout_s: float) -> None:
        self.state: ElectionState | None = None
        self.revision = 0
        self.away = False
        self.incarnation = 0
        """Another one after each copy that was put back: calls of an older one are lost."""
        self.changed_leader = 0
        self.odds = odds
        self._chance = chance
        self._timeout_s = timeout_s
        self._later: set[asyncio.Task[None]] = set()
        self._written: list[tuple[float, ElectionState, int]] = []
        """When each value was written."""

    async def read(self) -> StoredState:
        incarnation = self.incarnation
        await self._travel()
        found = StoredState(self.state, str(self.revision) if self.revision else ABSENT)
        await self._travel()
        self._reached(incarnation)
        return found

    async def swap(self, state: ElectionState, revision: str) -> str | None:
        incarnation = self.incarnation
        await self._travel()
        self._reached(incarnation)
        chance, odds = self._chance, self.odds
        if chance.random() < odds.late:
            self._do_later(state, revision)
            await asyncio.sleep(self._timeout_s)
            raise UnavailableError("simulated: late")
        done = self._swap(state, revision)
        if chance.random() < odds.doubled:
            self._do_later(state, revision)
        if chance.random() < odds.lost:
            await asyncio.sleep(self._timeout_s)
            raise UnavailableError("simulated: the answer is lost")
        await self._travel()
        return done

    def _reached(self, incarnation: int) -> None:
        if incarnation != self.incarnation:
            raise UnavailableError("simulated: the connection ended with the store")

    def put_back(self, age_s: float) -> bool:
        """To a copy of what it had at least `age_s` ago: a new server with the old revisions,
        and none of the calls that were on their way to it. False: there is no such copy."""
        before = asyncio.get_running_loop().time() - age_s
        copies = [number for number, one in enumerate(self._written) if one[0] < before]
        leader = self.state.leader if self.state is not None else ""
        others = [number for number in copies if self._written[number][1].leader != leader]
        if not copies:
            return False
        number = self._chance.choice(others or copies)
        _, self.state, self.revision = self._written[number]
        del self._written[number + 1 :]
        self._restarted()
        return True

    def empty(self) -> None:
        self.state, self.revision = None, 0
        self._written.clear()
        self._restarted()

    def _restarted(self) -> None:
        for task in self._later:
            task.cancel()
        self.incarnation += 1

    async def close(self) -> None:
        for task in self._later:
            task.cancel()

    def _swap(self, state: ElectionState, revision: str) -> str | None:
        if (str(self.revision) if self.revision else ABSENT) != revision:
            return None
        before = self.state.leader if self.state is not None else ""
        self.changed_leader += state.leader != before
        self.state, self.revision = state, self.revision + 1
        self._written.append((asyncio.get_running_loop().time(), state, self.revision))
        return str(self.revision)

    def _do_later(self, state: ElectionState, revision: str) -> None:
        async def later() -> None:
            await asyncio.sleep(self._chance.choice(LATE_S))
            self._swap(state, revision)

        task = asyncio.ensure_future(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _travel(self) -> None:
        """Half of a call's way."""
        slow = self._chance.random() < self.odds.slow
        await asyncio.sleep(self._chance.uniform(0.1, self._timeout_s / 2) if slow else 0.002)
        if self.away or self._chance.random() < self.odds.fail:
            await asyncio.sleep(self._chance.choice((0.0, self._timeout_s / 2)))
            raise UnavailableError("simulated: the store does not answer")


TTL_S, LOOP_S, TIMEOUT_S = 30.0, 10.0, 10.0
SETTLED_S = 12 * TTL_S
HOUR_MS = 3_600_000
RULES = {
    "lease": "a master without a lease answers nothing",
    "silence": "a candidate sees the leader silent for a whole ttl first",
    "sent": "a lease counts from before the renewal was sent",
    "watch": "who follows the value for less than a ttl without a step back takes nothing",
    "ended": "a leader answers nothing from before it names another on",
    "progress": "a log that has confirmed something is able (of `run_overloaded`)",
    "less": "a leader names no member that has less than it has acknowledged",
}
WEIGHTS = {
    "rest": 40,
    "pause_agent": 8,
    "kill_agent": 4,
    "cut_off": 6,
    "kill_broker": 5,
    "stall": 5,
    "fill": 4,
    "store_away": 4,
    "put_back": 4,
    "empty": 1,
    "switchover": 4,
    "pause_failover": 2,
    "heal": 14,
}


class SkewedClock:
    """Another machine's: it began elsewhere, and is a little fast or slow. Its wall clock jumps by
    an hour or two each second: nothing may depend on that one."""

    def __init__(self, loop: VirtualLoop, rate: float, began_ns: int) -> None:
        self._loop = loop
        self._rate = rate
        self._began_ns = began_ns

    def wall_ms(self) -> int:
        return self._loop.wall_ms() + HOUR_MS * (self._loop.monotonic_ns() // 1_000_000_000 % 3 - 1)

    def monotonic_ns(self) -> int:
        return self._began_ns + int(self._loop.monotonic_ns() * self._rate)


class LaxAgent(Agent):
    """One for which some rules do not hold."""

    without: frozenset[str] = frozenset()

    def _seen(self, state: ElectionState | None) -> Seen:
        seen = super()._seen(state)
        ttl_ns = self._timing.ttl_ns
        if "silence" in self.without:
            seen = replace(seen, unchanged_ns=ttl_ns)
        return replace(seen, watched_ns=ttl_ns) if "watch" in self.without else seen

    async def _own(self) -> tuple[Own | None, str]:
        own, problem = await super()._own()
        if own is not None and "less" in self.without:
            own = replace(own, confirmed=0)
        return own, problem

    async def _grant(self, term: int, sent_ns: int) -> None:
        if "sent" in self.without:
            sent_ns = self._clock.monotonic_ns() + self._timing.ttl_ns
        await super()._grant(term, sent_ns)


class PausedStore:
    """The store as one agent reaches it."""

    def __init__(self, store: SimulatedStore, reached: Reached) -> None:
        self._store = store
        self._reached = reached

    async def read(self) -> StoredState:
        await self._reached.running.wait()
        found = await self._store.read()
        await self._reached.running.wait()
        return found

    async def swap(self, state: ElectionState, revision: str) -> str | None:
        await self._reached.running.wait()
        done = await self._store.swap(state, revision)
        await self._reached.running.wait()
        return done

    async def close(self) -> None:
        return


class Simulation(VirtualRun):
    """`run` once. `without`: names of `RULES`."""

    def __init__(
        self, seed: int, *, trace: bool = False, without: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(seed, trace=trace)
        self._chance = chance = random.Random(seed)
        self._without = without
        level = chance.choice((0, 0, 0.02, 0.1))
        odds = Odds(*(level * chance.choice((0, 1, 2)) for _ in range(5)))
        self._store = SimulatedStore(chance, odds, TIMEOUT_S)
        count = chance.choice((2, 3, 3))
        sync = chance.random() < 0.5
        self._cluster = Cluster(chance.randint(1, count - 1), sync=sync, chance=chance)
        self._cluster.changed = self._check
        role = "SYNC" if sync else "ASYNC"
        self.outcome.settings = f"{count} members, {role}, k={self._cluster.required}, {odds}"
        self._clocks: dict[str, SkewedClock] = {}
        self._agents: dict[str, tuple[LaxAgent, Reached, asyncio.Task[None]]] = {}
        for slot in range(count):
            rate, began = chance.uniform(0.99, 1.01), chance.randrange(1 << 50)
            clock = SkewedClock(self.loop, rate, began)
            member = "abc"[slot]
            self._clocks[member] = clock
            lease, ends = "lease" not in without, "ended" not in without
            judge = Impatient if "progress" in without else Ability
            SimulatedBroker(member, slot, self._cluster, clock, lease=lease, ends=ends, judge=judge)

    def run(self, operations: int) -> Outcome:
        return self.run_virtually(self._all(operations))

    def run_overloaded(self, seconds: float) -> Outcome:
        """Nothing fails, and everything is slow: `promotions` counts changes of the leader."""
        return self.run_virtually(self._overloaded(seconds))

    async def _all(self, operations: int) -> None:
        for member in self._cluster.members:
            self._start_agent(member)
        hearing = self._start_seconds()
        await asyncio.sleep(TTL_S)
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        for number in range(operations):
            name = self._chance.choices(names, weights)[0]
            self.note(f"{number} {self.loop.time():.1f} s: {name}, {self._where()}")
            await getattr(self, f"_{name}")()
            self._look_at_agents()
            if hearing.done():
                hearing.result()
        await self._settle()
        hearing.cancel()
        self.outcome.situations["leads handed over"] += self._cluster.handed_over

    async def _overloaded(self, seconds: float) -> None:
        for member, broker in self._cluster.members.items():
            broker.flush_pause_s = lambda: self._chance.uniform(0.2, 0.8) * TTL_S
            self._start_agent(member)
            self._agents[member][1].pauses_s = (0.01, 0.5, 3.0)
        self._store.odds = Odds(slow=0.3)
        hearing = self._start_seconds()
        await asyncio.sleep(TTL_S)
        before = self._store.changed_leader
        await asyncio.sleep(seconds)
        hearing.cancel()
        self._look_at_agents()
        self.outcome.promotions = self._store.changed_leader - before

    def _start_seconds(self) -> asyncio.Task[None]:
        async def seconds() -> None:
            while True:
                await asyncio.sleep(1)
                self._cluster.second(self.loop.time())

        return asyncio.ensure_future(seconds())

    def _check(self) -> None:
        answering = self._cluster.answering()
        self.note(f"  {self.loop.time():.1f} s: {answering} answer")
        if len(answering) > 1:
            raise Violation("two masters", f"{', '.join(answering)} answer PUT_OK")

    def _look_at_agents(self) -> None:
        for _, _, task in self._agents.values():
            if task.done() and not task.cancelled():
                task.result()

    # --- what happens ---

    async def _rest(self) -> None:
        await asyncio.sleep(self._chance.choice((0.5, 3, 10, 29, 31, 70)))

    async def _pause_agent(self) -> None:
        """SIGSTOP."""
        self._agents[self._any()][1].running.clear()
        self.outcome.situations["agents paused"] += 1

    async def _kill_agent(self) -> None:
        member = self._any()
        self._agents[member][2].cancel()
        self.outcome.kills += 1
        await asyncio.sleep(self._chance.choice((0, 5, 50)))
        self._start_agent(member)

    async def _cut_off(self) -> None:
        self._cluster.cut_off.add(self._any())
        self.outcome.situations["members cut off from the others"] += 1

    async def _kill_broker(self) -> None:
        self._cluster.members[self._any()].kill()
        self.outcome.kills += 1

    async def _stall(self) -> None:
        self._cluster.members[self._any()].hangs = True
        self.outcome.situations["disks that hang"] += 1

    async def _fill(self) -> None:
        self._cluster.members[self._any()].gate.disk_full = True
        self.outcome.situations["disks full"] += 1

    async def _store_away(self) -> None:
        self._store.away = True
        self.outcome.situations["stores away"] += 1

    async def _put_back(self) -> None:
        """An operator puts the election store back to an older copy."""
        if self._store.put_back(TTL_S):
            self.outcome.situations["stores put back"] += 1

    async def _empty(self) -> None:
        self._store.empty()
        self.outcome.situations["stores emptied"] += 1

    async def _switchover(self) -> None:
        await self._ask(
            lambda agent: agent.request_switchover(self._any()), "switchovers asked for"
        )

    async def _pause_failover(self) -> None:
        paused = self._chance.random() < 0.5
        await self._ask(lambda agent: agent.set_paused(paused), "pauses and resumes")

    async def _ask(self, ask: Callable[[Agent], Awaitable[None]], what: str) -> None:
        agent, reached, _ = self._agents[self._any()]
        if not reached.running.is_set():
            return
        try:
            await ask(agent)
            self.outcome.situations[what] += 1
        except StrataError as error:
            self.note(f"  refused: {error}")

    async def _heal(self) -> None:
        """One of the things that were broken works again."""
        for one in self._chance.sample(range(4), self._chance.randint(1, 4)):
            if one == 0:
                self._store.away = False
            elif one == 1:
                self._cluster.cut_off.clear()
            elif one == 2:
                for broker in self._cluster.members.values():
                    broker.mend()
            else:
                for _, reached, _ in self._agents.values():
                    reached.running.set()

    async def _settle(self) -> None:
        self.note("settling")
        self._store.odds, self._store.away = Odds(), False
        self._cluster.cut_off.clear()
        for broker in self._cluster.members.values():
            broker.mend()
        for _, reached, _ in self._agents.values():
            reached.running.set()
        await asyncio.sleep(3 * TTL_S)
        if self._store.state is None:
            # No member has led in this store, and no broker is a master: an operator chooses.
            max(self._cluster.members.values(), key=lambda one: one.reach).promote()
            await asyncio.sleep(3 * TTL_S)
        await next(iter(self._agents.values()))[0].set_paused(False)
        await asyncio.sleep(SETTLED_S)
        self._look_at_agents()
        answering = self._cluster.answering()
        leader = self._store.state.leader if self._store.state is not None else ""
        if answering != [leader]:
            raise Violation("no leader", f"leader: {leader or 'none'}, {answering} answer")
        self.outcome.promotions = self._store.changed_leader

    # --- parts ---

    def _start_agent(self, member: str) -> None:
        reached = Reached(self._cluster.members[member], self._chance)
        agent = LaxAgent(
            PausedStore(self._store, reached),
            reached,
            self._clocks[member],
            Timing(int(TTL_S * 1e9), LOOP_S),
            lambda: member,
            self._wake,
        )
        agent.without = self._without
        self._agents[member] = agent, reached, asyncio.ensure_future(agent.run())

    async def _wake(self, address: str) -> None:
        if self._chance.random() < 0.8:
            self._agents[address][0].wake()

    def _any(self) -> str:
        return self._chance.choice(list(self._cluster.members))

    def _where(self) -> str:
        state = self._store.state
        roles = [
            f"{one.member}{'!' if one.is_master else ''}{one.term}{'' if one.alive else '†'}"
            for one in self._cluster.members.values()
        ]
        return f"leader {state.leader or 'none' if state else 'unknown'}; {' '.join(roles)}"


TRIAL = SeedsTrial("agents", Simulation, frozenset({"two masters", "lost"}), RULES)
