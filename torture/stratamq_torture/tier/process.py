"""One process of the tier service: its own role, tenure, uploads and key index; no server.

Its procedures run without threads: each call is made after a drawn pause, so that those of all
processes mix, and a call under way may be made after its caller has ended. RULES are those that a
trial can go without, to see what they are for.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from stratamq_tier import upkeep
from stratamq_tier.config import TierConfig
from stratamq_tier.followed_log import FollowedLog
from stratamq_tier.indexing import Indexing
from stratamq_tier.loading import load
from stratamq_tier.parts import Parts
from stratamq_tier.queue_table import TierQueueTable
from stratamq_tier.role import TierRole
from stratamq_tier.tenure import Tenure
from stratamq_tier.working import index_opened

from stratamq.errors import StrataError
from stratamq.files.port import Clock
from stratamq.files.simulated_faults import SimulatedCrash
from stratamq.follow.protocol import Event
from stratamq.formats.tier_manifest import MANIFEST_NAME, Epoch, decode_manifest, encode_manifest
from stratamq.formats.tier_names import INDEX_TOPIC
from stratamq.formats.tier_progress import decode_progress, encode_progress
from stratamq.service.tasks import first_ended
from stratamq.tier.driver.calls import (
    AbsentError,
    Delete,
    Load,
    Procedure,
    StorageCall,
    Swap,
    Together,
    WriteAt,
)
from stratamq.tier.driver.retrying import Retries, RetryingStorage
from stratamq.tier.driver.simulated import SimulatedBackend, SimulatedStorage
from stratamq.tier.driver.storage import CallOutcome, Storage, attempt, joined
from stratamq.tier.writing.intake import QueueKey
from stratamq_torture.tier.broker_log import BrokerLog
from stratamq_torture.trial import VirtualLoop

EVERY = 4
"""The clock jumps in every so many seeds: those that leave this rest."""
REST = 2
AHEAD_MS = (0, 0, 7_200_000, 360_000_000, -360_000_000)
"""Two hours, 100 hours. The log doubts a clock that is ahead."""
CHANCE = 0.1


class Jumps:
    """Draws by itself, so that what else a seed does is as without it."""

    def __init__(self, seed: int) -> None:
        self.ahead_ms = 0
        self._chance = random.Random(f"jumps {seed}")
        self._happens = seed % EVERY == REST

    @property
    def doubt(self) -> str:
        """The log's, whose monotonic clock shows how much time has really passed."""
        return "the wall clock jumped ahead" if self.ahead_ms > 0 else ""

    def step(self) -> str:
        """What has been done: "" for nothing."""
        if not self._happens or self._chance.random() >= CHANCE:
            return ""
        before, self.ahead_ms = self.ahead_ms, self._chance.choice(AHEAD_MS)
        if self.ahead_ms == before:
            return ""
        return "wall clocks set forward" if self.ahead_ms > before else "wall clocks set back"

    def settle(self) -> None:
        self.ahead_ms = 0


class MachineClock:
    """Wall times of a clock, with the jumps; monotonic times are the clock's."""

    def __init__(self, clock: Clock, jumps: Jumps) -> None:
        self._clock = clock
        self._jumps = jumps
        self.monotonic_ns = clock.monotonic_ns

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self._jumps.ahead_ms


T = TypeVar("T")

RULES = {
    "swap": "a manifest is replaced only by who has seen it",
    "claim": "each writer has an epoch above those before it",
    "reach": "a new master knows how far the one before may have uploaded",
    "places": "the tier knows where in the log its messages were",
    "lost": "what a tier that was put back misses is no gap that readers pass over",
    "clock": "nothing leaves by a wall clock that jumped ahead",
    "hold": "the log deletes nothing that the tier does not have",
}


class LaxStorage:
    """`Storage` of a process in which some rules do not hold."""

    def __init__(self, storage: SimulatedStorage, without: frozenset[str]) -> None:
        self._storage = storage
        self._without = without

    @property
    def positions(self) -> bool:
        return self._storage.positions

    def perform(self, call: StorageCall[T]) -> T:
        path = getattr(call, "path", "")
        if "swap" in self._without and path.endswith(MANIFEST_NAME) and isinstance(call, Swap):
            return cast(T, self._storage.perform(replace(call, version=self._version(path))))
        if "swap" in self._without and isinstance(call, WriteAt | Delete):
            return cast(T, self._storage.perform(replace(call, only_if=None)))
        if "claim" in self._without and path.endswith("/stratamq-writer.json"):
            if isinstance(call, Load):
                raise AbsentError("a rule is switched off")
            if isinstance(call, Swap):
                return cast(T, self._storage.perform(replace(call, version=self._version(path))))
        if "lost" in self._without and path.endswith(MANIFEST_NAME) and INDEX_TOPIC not in path:
            call = _without_lost(call)
        result = self._storage.perform(call)
        of_queue = path.endswith(MANIFEST_NAME) and INDEX_TOPIC not in path
        if "places" in self._without and of_queue:
            return cast(T, _without_places(call, result))
        if "reach" in self._without and path.endswith("/stratamq-progress.json"):
            return cast(T, _without_reach(call, result))
        return result

    def close(self) -> None:
        self._storage.close()

    def _version(self, path: str) -> Any:
        try:
            return self._storage.backend.memory.perform(Load(path))[1]
        except AbsentError:
            return None


def _without_lost(call: StorageCall[Any]) -> StorageCall[Any]:
    if not isinstance(call, Swap):
        return call
    manifest = decode_manifest(bytes(call.data))
    holes = tuple(replace(hole, lost=False) for hole in manifest.holes)
    return replace(call, data=encode_manifest(replace(manifest, holes=holes)))


def _without_places(call: StorageCall[Any], result: Any) -> Any:
    if not isinstance(call, Load):
        return result
    raw, version = result
    manifest = decode_manifest(raw)
    return encode_manifest(replace(manifest, other_log=manifest.end_offset)), version


def _without_reach(call: StorageCall[Any], result: Any) -> Any:
    if not isinstance(call, Load):
        return result
    raw, version = result
    progress = decode_progress(raw)
    return encode_progress(replace(progress, reach=progress.position)), version


LONGEST_CALL_S = 0.2
_SLOW, _SLOWEST_S = 0.02, 120.0


class SteppedRunner:
    """In place of `Runner`, for one process."""

    def __init__(self, storage: Storage, chance: random.Random) -> None:
        self.storage = storage
        self.paused_until_s = 0.0
        self._chance = chance

    async def start(self, procedure: Procedure[T]) -> T:
        """Like `Runner.start`."""
        outcome = CallOutcome(None)
        try:
            while True:
                try:
                    if outcome.error is not None:
                        call = procedure.throw(outcome.error)
                    else:
                        call = procedure.send(outcome.value)
                except StopIteration as end:
                    result: T = end.value
                    return result
                outcome = await self._outcome(call)
        finally:
            procedure.close()

    async def _outcome(self, call: StorageCall[Any]) -> CallOutcome:
        if isinstance(call, Together):
            waiting = [self._outcome(one) for one in call.calls]
            return joined(list(await asyncio.gather(*waiting)))
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(max(self._pause_s(), self.paused_until_s - loop.time()))
        except asyncio.CancelledError:
            if self._chance.random() < 0.5:
                loop.call_later(self._pause_s(), self._unheard, call)
            raise
        return attempt(self.storage, call)

    def _pause_s(self) -> float:
        if self._chance.random() < _SLOW:
            return self._chance.uniform(0, _SLOWEST_S)
        return self._chance.uniform(0, LONGEST_CALL_S)

    def _unheard(self, call: StorageCall[Any]) -> None:
        try:
            attempt(self.storage, call)
        except SimulatedCrash:
            return


class SteppedReading:
    """In place of the service's thread that reads the log."""

    async def run(self, work: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return work()


CLUSTER, BROKER = "DefaultCluster", "broker-a"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a seed has chosen for all its processes."""

    retries: bool
    without: frozenset[str]
    config: TierConfig

    @property
    def positions(self) -> bool:
        return not self.config.is_objects


class TierProcess:
    """`start` it once. It ends by its storage's crash or by `kill`."""

    def __init__(
        self,
        loop: VirtualLoop,
        backend: SimulatedBackend,
        broker_log: BrokerLog,
        shape: Shape,
        chance: random.Random,
        jumps: Jumps,
    ) -> None:
        self.broker_log = broker_log
        self.died: SimulatedCrash | None = None
        self.role: TierRole | None = None
        self._loop = loop
        self._jumps = jumps
        self._shape = shape
        self._config = shape.config
        self._own = backend.storage()
        storage: Storage = LaxStorage(self._own, shape.without) if shape.without else self._own
        if shape.retries:
            storage = RetryingStorage(storage, Retries(3), lambda seconds: None, chance.random)
        self.runner = SteppedRunner(storage, chance)
        self._reading = SteppedReading()
        self._wake = asyncio.Event()
        self.followed = FollowedLog(self._wake.set)
        self.table = TierQueueTable()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.followed.opened(self.broker_log.opened())
        self._task = self._loop.create_task(self._run())

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done() and not self._own.dead

    @property
    def tenure(self) -> Tenure | None:
        return self.role.tenure if self.role is not None else None

    @property
    def caught_up(self) -> bool:
        """Everything that belongs in the tier is there, and indexed."""
        tenure = self.tenure
        if tenure is None or not tenure.begun.is_set() or tenure.indexing is None:
            return False
        done = tenure.accounted and self.followed.committed >= self.broker_log.end
        status = tenure.indexing.status
        return done and not status.queues_behind and not status.waiting_items

    def hear(self) -> None:
        """The log announces its offsets."""
        if self._loop.time() < self.runner.paused_until_s:
            return
        own = self.broker_log
        if self.followed.state.generation != own.generation:
            self.followed.opened(own.opened())
            return
        event = Event(own.generation, own.end, own.end, own.confirmed, own.flushed, own.minimum)
        for _ in self.followed.apply(event):
            pass

    async def kill(self) -> None:
        """Calls that are under way may still be done."""
        assert self._task is not None
        self._own.dead = self._own.dead or self._chance_of_late()
        self._task.cancel()
        await asyncio.wait([self._task])

    async def ended(self) -> None:
        """Raises what ended it, unless that was a crash."""
        assert self._task is not None
        if not self.alive:
            await self.kill()
        if self._task.done() and not self._task.cancelled():
            error = self._task.exception()
            if error is not None and not isinstance(error, SimulatedCrash):
                raise error

    def _chance_of_late(self) -> bool:
        return len(self.broker_log.messages) % 2 == 0

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
                break
            except StrataError:
                await asyncio.sleep(1)
        parts = Parts(
            self._config,
            BROKER,
            self.broker_log.files,
            MachineClock(self._loop, self._jumps),
            cast(Any, self.runner),
            cast(Any, self._reading),
            self.followed,
            self._queue_ends,
            lambda key: self.broker_log.floors.get(key, 0),
            self._look,
            self._look,
            self.table,
            self._open_index,
            self._clock_doubt,
        )

        async def beside(tenure: Tenure) -> None:
            await tenure.begun.wait()
            assert tenure.indexing is not None
            await first_ended(upkeep.expire_regularly(parts, tenure), tenure.indexing.run())

        self.role = TierRole(parts, self._wake, beside)
        await self.role.run()

    async def _clock_doubt(self) -> str:
        return "" if "clock" in self._shape.without else self._jumps.doubt

    async def _look(self) -> None:
        await load(cast(Any, self.runner), (CLUSTER, BROKER), self.table)

    async def _queue_ends(self) -> tuple[int, dict[QueueKey, int]]:
        return self.broker_log.end, dict(self.broker_log.next)

    async def _open_index(self, epoch: Epoch) -> Indexing:
        runner = cast(Any, self.runner)
        return await index_opened(runner, self._loop, self._config, BROKER, epoch, self.table, {})
