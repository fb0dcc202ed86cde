"""Rounds of three agents over simulated brokers and a simulated store."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from stratamq_agent.agent import Agent, Timing
from stratamq_agent.decision import SETTLED_TTLS
from stratamq_agent.watch import LeaseWatch
from stratamq_torture.agents.brokers import Cluster, Reached, SimulatedBroker
from stratamq_torture.agents.simulation import Odds, SimulatedStore, SkewedClock
from stratamq_torture.trial import VirtualLoop

from stratamq.formats.election_state import ElectionState

TTL_S, LOOP_S = 30.0, 10.0


class Three:
    """Members a, b and c; a leads."""

    def __init__(self, *, sync: bool) -> None:
        self.loop = VirtualLoop()
        chance = random.Random(1)
        self.cluster = Cluster(1, sync=sync, chance=chance)
        self.store = SimulatedStore(chance, Odds(), 10.0)
        self.agents: dict[str, Agent] = {}
        for slot, member in enumerate("abc"):
            clock = SkewedClock(self.loop, 1.0, 0)
            broker = SimulatedBroker(member, slot, self.cluster, clock, lease=True, ends=True)
            self.agents[member] = Agent(
                self.store,
                Reached(broker, chance),
                clock,
                Timing(int(TTL_S * 1e9), LOOP_S),
                lambda member=member: member,
                self._wake,
            )

    async def _wake(self, address: str) -> None:
        self.agents[address].wake()

    @property
    def state(self) -> ElectionState:
        assert self.store.state is not None
        return self.store.state

    async def until(self, done: Callable[[], bool], limit_s: float) -> float:
        """Seconds."""
        began = self.loop.time()
        while not done():
            assert self.loop.time() - began < limit_s, self.state
            await asyncio.sleep(0.1)
        return self.loop.time() - began

    def run(self, work: Callable[["Three"], Awaitable[None]]) -> None:
        async def seconds() -> None:
            while True:
                await asyncio.sleep(1)
                self.cluster.second(self.loop.time())

        async def all_of_it() -> None:
            running = [asyncio.ensure_future(one.run()) for one in self.agents.values()]
            running.append(asyncio.ensure_future(seconds()))
            await asyncio.sleep(2 * TTL_S)
            await work(self)
            assert not any(task.done() for task in running)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.wait(left)

        self.loop.run_until_complete(all_of_it())
        self.loop.close()


def fill(broker: SimulatedBroker) -> None:
    broker.gate.disk_full = True


def stall(broker: SimulatedBroker) -> None:
    broker.hangs = True


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("harm", [fill, stall])
def test_the_lead_moves_after_a_ttl_and_later_after_two_and_moves_are_forgotten(sync, harm):
    async def work(three: Three) -> None:
        harm(three.cluster.members["a"])
        await three.until(lambda: three.state.unable is not None, TTL_S)
        assert three.agents["c"].problems == [] or "a leads" in three.agents["c"].problems[0]
        await three.until(lambda: three.state.leader in ("b", "c"), 2 * TTL_S)
        assert three.state.moves == 1
        second = three.cluster.members[three.state.leader]
        await three.until(lambda: second.answers, LOOP_S)
        three.cluster.members["a"].mend()
        await asyncio.sleep(TTL_S)
        harm(second)
        passed = await three.until(lambda: three.state.leader != second.member, 4 * TTL_S)
        assert passed >= 2 * TTL_S - LOOP_S
        assert three.state.moves == 2
        second.mend()
        await three.until(lambda: three.state.moves == 0, (SETTLED_TTLS + 3) * TTL_S)
        assert len(three.cluster.answering()) == 1

    Three(sync=sync).run(work)


def test_while_no_other_member_is_better_the_leader_stays_and_says_why():
    async def work(three: Three) -> None:
        for broker in three.cluster.members.values():
            fill(broker)
        await asyncio.sleep(4 * TTL_S)
        assert (three.state.leader, three.state.moves, three.state.offer) == ("a", 0, None)
        (problem,) = three.agents["a"].problems
        assert problem.startswith("a leads, and has acknowledged nothing for 1")
        assert "no other member can take over" in problem
        assert "no better" in three.agents["b"].view.last_action
        for broker in three.cluster.members.values():
            broker.mend()
        await three.until(lambda: three.state.unable is None, LOOP_S)
        assert three.cluster.answering() == ["a"]

    Three(sync=True).run(work)


def test_a_leader_cut_off_from_its_slaves_is_replaced_while_it_reaches_the_store():
    async def work(three: Three) -> None:
        three.cluster.cut_off.add("a")
        await three.until(lambda: three.state.leader in ("b", "c"), 2 * TTL_S)
        await three.until(lambda: three.cluster.answering() == [three.state.leader], LOOP_S)
        assert three.cluster.members["a"].is_master
        three.cluster.cut_off.clear()
        await three.until(lambda: not three.cluster.members["a"].is_master, LOOP_S)

    Three(sync=True).run(work)


def test_a_named_member_takes_office_soon_after_the_last_one_has_answered_it():
    """Its agent has just started, and the leader before it may be about to stop."""

    async def work(three: Three) -> None:
        b = three.agents["b"]
        b.watch = LeaseWatch(SkewedClock(three.loop, 1.0, 0), int(TTL_S * 1e9))
        three.cluster.cut_off.add("c")
        await b.request_switchover("b")
        await three.until(lambda: three.state.leader == "b", LOOP_S)
        await three.until(lambda: "has not followed" in b.view.last_action, 1)
        await asyncio.sleep(2)
        assert not three.cluster.answering()
        three.cluster.cut_off.clear()
        assert await three.until(lambda: three.cluster.answering() == ["b"], LOOP_S) <= 2

    Three(sync=True).run(work)
