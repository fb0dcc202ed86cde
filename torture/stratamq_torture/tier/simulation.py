"""One seed: brokers' logs, the processes that write them into a tier, and what happens to them.

Whatever happens is chosen by the seed, so that a seed that fails does so again.
"""

import asyncio
import random
from pathlib import Path

from stratamq_tier.config import TierConfig

from stratamq.errors import StrataError
from stratamq.files.simulated_faults import SimulatedCrash
from stratamq.formats.generation_number import term_of
from stratamq.tier.driver.simulated import Odds, SimulatedBackend, When
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.verify import queues_of
from stratamq.tier.writing.claim import FencedError
from stratamq.tier.writing.collecting import claim_to_collect, collect
from stratamq.tier.writing.progress import load_progress
from stratamq_torture.tier import checks
from stratamq_torture.tier.broker_log import SEGMENT_BYTES, BrokerLog
from stratamq_torture.tier.checks import Copies, check_restored
from stratamq_torture.tier.process import BROKER, CLUSTER, RULES, Jumps, Shape, TierProcess
from stratamq_torture.trial import Outcome, SeedsTrial, Violation, VirtualRun

WEIGHTS = {
    "append": 40,
    "flush": 25,
    "rest": 25,
    "delete": 8,
    "crash_point": 8,
    "kill": 4,
    "pause": 4,
    "second": 3,
    "force": 2,
    "lose_tail": 3,
    "restart_log": 2,
    "promote": 3,
    "old_master": 4,
    "gc": 2,
    "look": 2,
}
FAULTS = (
    "crash_point",
    "kill",
    "pause",
    "second",
    "force",
    "lose_tail",
    "restart_log",
    "promote",
    "gc",
)
PURGE_WEIGHT = 6
RESTS_S = (0.1, 1, 10, 30, 200, 2_000)
LONGEST_SETTLING_S = 100_000
MAX_PROCESSES = 4
KEYS_ASKED = 25


class Simulation(VirtualRun):
    """`run` once. `without`: names of `RULES` that do not hold."""

    def __init__(
        self, seed: int, *, trace: bool = False, without: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(seed, trace=trace)
        self._chance = random.Random(seed)
        self._far_behind = seed % 4 == 3
        """Slaves may never have met the master's last generation."""
        chance = self._chance
        self._shape = _shape(chance, without)
        self.outcome.settings = repr(self._shape)
        level = chance.choice((0, 0, 0.01, 0.04))
        drawn = [level * chance.choice((0, 1, 2)) for _ in range(6)]
        fail, busy, lost, late, partial, slow = drawn
        stale = chance.choice((0, 0.1))
        self._odds = Odds(fail, busy, lost, late, partial, slow, stale)
        self._backend = SimulatedBackend(
            seed,
            positions=self._shape.positions,
            odds=self._odds,
            now_ms=self.loop.wall_ms,
        )
        self._log = BrokerLog("node-0", chance)
        self._log.begin(chance.choice((0, 1)))
        self._old: list[BrokerLog] = []
        self._copies = Copies(seed, self._backend.memory)
        self._jumps = Jumps(seed)
        self._processes: list[TierProcess] = []
        self._numbers = 0
        self._weights = dict(WEIGHTS)
        for fault in FAULTS:
            self._weights[fault] *= chance.choice((0, 1, 2))
        if seed % 8 in (1, 5, 7):
            self._weights["purge"] = PURGE_WEIGHT
        topics = chance.sample(checks.TIERED, chance.randint(1, 3))
        keys = [(topic, queue) for topic in topics for queue in range(chance.randint(1, 2))]
        self._keys = [*keys, (checks.LEFT_OUT, 0)]

    def run(self, operations: int) -> Outcome:
        return self.run_virtually(self._all(operations))

    async def _all(self, operations: int) -> None:
        self._start(self._log)
        names, weights = list(self._weights), list(self._weights.values())
        for number in range(operations):
            name = self._chance.choices(names, weights)[0]
            self.note(f"{number} {self.loop.time():.1f} s, call {self._backend.calls}: {name}")
            await getattr(self, f"_{name}")()
            await self._bury()
            for situation in filter(None, (self._copies.step(), self._jumps.step())):
                self.note(situation)
                self.outcome.situations[situation] += 1
        await self._settle()

    # --- the log ---

    async def _append(self) -> None:
        self._append_to(self._log)

    def _append_to(self, log: BrokerLog) -> None:
        chance = self._chance
        for _ in range(chance.choice((1, 3, 12))):
            size = chance.choice((0, 20, 20, 100, 700, 5_000))
            self._numbers += 1
            log.append(
                chance.choice(self._keys),
                chance.randbytes(size),
                self._numbers,
                self.loop.wall_ms(),
            )
        log.confirmed = log.end

    async def _flush(self) -> None:
        log = self._log
        log.flushed = self._chance.choice(
            [end for end in log.ends() if end >= log.flushed] or [log.end]
        )
        if self._chance.random() < 0.5:
            log.flushed = log.end
        log.confirmed = log.end
        self._announce()

    def _announce(self) -> None:
        for process in self._processes:
            process.hear()

    async def _delete(self) -> None:
        """Delete like the janitor, which waits for the tier."""
        log = self._log
        held = min((one.followed.durable for one in self._of(log)), default=0)
        if "hold" in self._shape.without:
            held = log.flushed
        self._delete_below(log, min(held, log.flushed))

    def _delete_below(self, log: BrokerLog, held: int) -> None:
        minimum = held - held % SEGMENT_BYTES
        if minimum <= log.minimum:
            return
        going = [one for one in log.messages[log.first_local :] if one.place < minimum]
        if not self._copies.put_back:
            checks.require_there(self._backend.memory, going, log)
        log.delete_below(minimum)
        self.outcome.situations["segments deleted that the tier had"] += 1
        self._announce()

    async def _force(self) -> None:
        """A full disk: without regard to the tier."""
        log = self._log
        minimum = log.flushed - log.flushed % SEGMENT_BYTES
        if minimum <= log.minimum:
            return
        found = run(load_progress(CLUSTER, BROKER), self._backend.memory)
        if found is not None and term_of(found[0].generation) != term_of(log.generation):
            # Before a promoted log has taken the tier over its own messages would decide what goes.
            log.gone.update(checks.undecided(self._backend.memory, log, found[0]))
            self.outcome.situations["segments deleted by force before a take-over"] += 1
        for message in log.messages[log.first_local :]:
            if message.place < minimum:
                log.gone.add((message.key, message.queue_offset))
        log.delete_below(minimum)
        self.outcome.situations["segments deleted by force"] += 1
        self._announce()

    async def _purge(self) -> None:
        if self._log.next:
            self._log.purge()
            self.outcome.situations["queues purged"] += 1

    async def _lose_tail(self) -> None:
        """Power is lost, and with it what was not flushed; a new generation begins."""
        log = self._log
        await self._kill_all(log)
        places = [end for end in log.ends() if end >= log.flushed]
        if places:
            log.cut(self._chance.choice([log.flushed, *places]))
        self._begin(log)
        self.outcome.situations["unflushed tails lost"] += 1

    async def _restart_log(self) -> None:
        """The log alone: its services follow the new generation."""
        log = self._log
        log.flushed = log.confirmed = log.end
        log.begin(term_of(log.generation))
        self._announce()

    def _begin(self, log: BrokerLog) -> None:
        log.flushed = log.confirmed = log.end
        log.begin(term_of(log.generation))
        self._start(log)

    async def _promote(self) -> None:
        """A slave with a history that may be shorter; the old master does not know."""
        old = self._log
        ends = old.ends()[-60:]
        if not self._far_behind:
            begun = old.generations[-1][1]
            ends = [end for end in ends if end >= begun]
        end = self._chance.choice([old.end, *ends])
        most = min(old.minimum, end - end % SEGMENT_BYTES)
        minimum = self._chance.randrange(0, most + 1, SEGMENT_BYTES)
        name = f"node-{len(self._old) + 1}"
        self._old.append(old)
        self._log = old.copy(name, minimum, end, term_of(old.generation) + 1)
        self.outcome.promotions += 1
        if end < old.end:
            self.outcome.situations["promotions to a shorter history"] += 1
        if self._chance.random() < 0.3:
            await self._kill_all(old)
        self._start(self._log)

    async def _old_master(self) -> None:
        """It continues: takes messages, and may be started again."""
        if not self._old:
            return
        old = self._old[-1]
        self._append_to(old)
        old.flushed = old.end
        if not self._of(old) and self._chance.random() < 0.3:
            self._start(old)
        self._announce()

    # --- the processes ---

    def _of(self, log: BrokerLog) -> list[TierProcess]:
        return [one for one in self._processes if one.broker_log is log]

    def _start(self, log: BrokerLog) -> None:
        if len(self._processes) >= MAX_PROCESSES and log is not self._log:
            return
        chance = random.Random(self._chance.getrandbits(64))
        process = TierProcess(self.loop, self._backend, log, self._shape, chance, self._jumps)
        self._processes.append(process)
        process.start()

    async def _bury(self) -> None:
        """Those that crashed; the log's own starts again."""
        dead = [one for one in self._processes if not one.alive]
        for process in dead:
            self._processes.remove(process)
            await process.ended()
            self.note(f"a process of {process.broker_log.name} has crashed")
        if not self._of(self._log):
            self._start(self._log)

    async def _kill_all(self, log: BrokerLog) -> None:
        for process in self._of(log):
            self._processes.remove(process)
            self.outcome.kills += 1
            await process.kill()

    async def _kill(self) -> None:
        await self._kill_all(self._chance.choice(self._processes).broker_log)

    async def _crash_point(self) -> None:
        """Whichever process makes that call dies before, in or after it."""
        call = self._backend.calls + self._chance.choice((1, 2, 5, 20))
        self._backend.crash_at(call, self._chance.choice(list(When)))
        self.outcome.crash_points += 1

    async def _pause(self) -> None:
        process = self._chance.choice(self._processes)
        process.runner.paused_until_s = self.loop.time() + self._chance.choice((5, 60, 3_000))
        self.outcome.situations["processes paused"] += 1

    async def _second(self) -> None:
        """Start a second service of the same log: the one that claims later writes."""
        if len(self._processes) < MAX_PROCESSES:
            self._start(self._log)
            self.outcome.situations["two writers of one log"] += 1

    async def _rest(self) -> None:
        self._announce()
        await asyncio.sleep(self._chance.choice(RESTS_S))

    async def _look(self) -> None:
        """While nothing is settled: what is named is whole."""
        memory = self._backend.memory
        for place in run(queues_of(CLUSTER, BROKER), memory):
            faults = checks.faults_of(memory, place, told=bool(self._copies.put_back))
            if faults:
                raise Violation("verify", f"{place.path}: {faults[0]}")

    async def _gc(self) -> None:
        """`stratamq tier gc --take-over`, beside writers that do not know, or are stopped first."""
        if self._chance.random() < 0.5:
            await self._kill_all(self._log)
        storage = self._backend.storage()
        before_ms = self.loop.wall_ms() - 3_600_000
        try:
            epoch = run(claim_to_collect(CLUSTER, BROKER, take_over=True), storage)
            for place in run(queues_of(CLUSTER, BROKER), storage):
                run(collect(place, epoch, self._shape.positions, before_ms), storage)
            self.outcome.situations["tiers collected"] += 1
        except (SimulatedCrash, FencedError, StrataError):
            self.outcome.situations["collections that failed"] += 1
        # A service that was fenced writes again from its next start on.
        await self._kill_all(self._log)

    # --- the end ---

    async def _settle(self) -> None:
        """No faults any more; the log's own process brings everything into the tier."""
        self.note(f"settling, {self.loop.time():.1f} s")
        log, backend = self._log, self._backend
        backend.settle()
        self._jumps.settle()
        for process in list(self._processes):
            await self._kill_all(process.broker_log)
        await asyncio.sleep(1_000)
        log.flushed = log.confirmed = log.end
        self._start(log)
        process = self._processes[-1]
        until_s = self.loop.time() + LONGEST_SETTLING_S
        while not process.caught_up:
            await process.ended()
            if self.loop.time() > until_s:
                reason = process.role.not_writing_reason if process.role else "not started"
                tenure = process.tenure
                failure = tenure.uploads.last_failure if tenure else ""
                raise Violation("stuck", f"{process.followed}: {reason}; {failure}")
            self._announce()
            await asyncio.sleep(10)
        if log.floors:
            # What was purged leaves at the next look for what leaves.
            await asyncio.sleep(2 * self._shape.config.retention_interval_ms / 1000)
        memory, now_ms = backend.memory, self.loop.wall_ms()
        told = bool(self._copies.put_back)
        self.outcome.acknowledged = checks.check_whole(memory, log, now_ms, told=told)
        tenure = process.tenure
        assert tenure is not None and tenure.indexing is not None
        tiered = [one for one in log.messages if one.key[0] in checks.TIERED]
        asked = self._chance.sample(tiered, min(KEYS_ASKED, len(tiered)))
        checks.check_keys(memory, tenure.indexing.reader(), asked, log)
        await self._kill_all(log)
        await asyncio.sleep(1_000)
        self._collect_all()
        checks.check_whole(memory, log, now_ms, told=told)
        restored = check_restored(backend.storage(), self._chance)
        self.outcome.situations["messages restored"] += restored

    def _collect_all(self) -> None:
        """Nothing but what is named is left."""
        storage, far_ms = self._backend.storage(), 1 << 60
        epoch = run(claim_to_collect(CLUSTER, BROKER, take_over=True), storage)
        for place in run(queues_of(CLUSTER, BROKER), storage):
            run(collect(place, epoch, self._shape.positions, far_ms), storage)
        checks.check_nothing_left(self._backend.memory)


def _shape(chance: random.Random, without: frozenset[str]) -> Shape:
    positions, retries = chance.random() < 0.5, chance.random() < 0.5
    config = TierConfig(
        root=Path("store"),
        target="tier" if positions else "s3://tier",
        cluster=CLUSTER,
        broker=BROKER,
        except_topics=("private",),
        scan_interval_ms=5_000,
        batch_wait_ms=10_000,
        batch_bytes=chance.choice((500, 3_000, 8_000)),
        batch_messages=chance.choice((1, 5, 100)),
        uploads_at_once=3,
        retry_longest_ms=5_000,
        record_segment_bytes=chance.choice((1_024, 4_000, 20_000)),
        unit_segment_bytes=chance.choice((40, 100, 2_000)),
        budget_bytes=chance.choice((8_000, 50_000)),
        roll_interval_hours=1,
        roll_minimum_bytes=chance.choice((0, 2_000)),
        retention_hours=0,
        topic_retention_hours=("short=1",),
        retention_interval_ms=300_000,
        grace_ms=600_000,
        index_interval_ms=60_000,
        index_slots=64,
        index_items=40,
    )
    return Shape(retries, without, config)


TRIAL = SeedsTrial("tier", Simulation, frozenset({"lost", "bytes", "hold"}), RULES)
