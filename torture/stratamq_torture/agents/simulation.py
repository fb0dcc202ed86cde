"""One seed: agents, their brokers and the store, and what happens to them. At any moment at most
one master answers; no message is lost that may not be; in the end, when everything works again,
exactly one master answers, and leads."""

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace

from stratamq_agent.agent import Agent, Timing
from stratamq_agent.decision import Own, Seen
from stratamq_commitlog.write.ability import Ability

from stratamq.election.store import Snapshot
from stratamq.errors import StrataError
from stratamq.formats.election_state import ElectionState
from stratamq_torture.agents.brokers import Cluster, Impatient, Reached, SimulatedBroker
from stratamq_torture.agents.store import Odds, SimulatedStore
from stratamq_torture.seeds import Outcome
from stratamq_torture.simulated.model import Violation
from stratamq_torture.virtual_time import VirtualLoop

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

    async def read(self) -> Snapshot:
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


class Simulation:
    """`run` once. `without`: names of `RULES`."""

    def __init__(
        self, seed: int, *, trace: bool = False, without: frozenset[str] = frozenset()
    ) -> None:
        self.outcome = Outcome(seed)
        self._chance = chance = random.Random(seed)
        self._tracing = trace
        self._without = without
        self._loop = VirtualLoop()
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
            clock = SkewedClock(self._loop, rate, began)
            member = "abc"[slot]
            self._clocks[member] = clock
            lease, ends = "lease" not in without, "ended" not in without
            judge = Impatient if "progress" in without else Ability
            SimulatedBroker(member, slot, self._cluster, clock, lease=lease, ends=ends, judge=judge)

    def run(self, operations: int) -> Outcome:
        return self._run(self._all(operations))

    def run_overloaded(self, seconds: float) -> Outcome:
        """Nothing fails, and everything is slow: `promotions` counts changes of the leader."""
        return self._run(self._overloaded(seconds))

    def _run(self, work: Coroutine[None, None, None]) -> Outcome:
        outcome, loop = self.outcome, self._loop
        # What ends an agent's task is looked at after each operation.
        loop.set_exception_handler(lambda loop, context: None)
        try:
            loop.run_until_complete(work)
        except Violation as violation:
            outcome.violation = violation
        except Exception as error:  # noqa: BLE001 - a defect of any kind is reported by its seed
            outcome.violation = Violation("error", repr(error))
            self._note(traceback.format_exc())
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks))
            loop.close()
        return outcome

    async def _all(self, operations: int) -> None:
        for member in self._cluster.members:
            self._start_agent(member)
        hearing = self._start_seconds()
        await asyncio.sleep(TTL_S)
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        for number in range(operations):
            name = self._chance.choices(names, weights)[0]
            self._note(f"{number} {self._loop.time():.1f} s: {name}, {self._where()}")
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
                self._cluster.second(self._loop.time())

        return asyncio.ensure_future(seconds())

    def _check(self) -> None:
        answering = self._cluster.answering()
        self._note(f"  {self._loop.time():.1f} s: {answering} answer")
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
        await self._ask(lambda agent: agent.ask_switchover(self._any()), "switchovers asked for")

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
            self._note(f"  refused: {error}")

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
        self._note("settling")
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

    def _note(self, line: str) -> None:
        if self._tracing:
            self.outcome.trace.append(line)
