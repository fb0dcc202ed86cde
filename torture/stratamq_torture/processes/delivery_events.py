"""What befalls the brokers of `stratamq torture delivery`, and these brokers: services are killed,
a volume is full for a while, a master is lost, wall clocks jump.
"""

import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Self

from stratamq.client import Role, connect
from stratamq.rpc import discovery
from stratamq.rpc.rooms import COMMITLOG, DELIVERY, DISPATCHER, HA
from stratamq_torture.disks import volume
from stratamq_torture.processes.moved_clock import MovedClock
from stratamq_torture.processes.services import DEFAULT_RATIOS, Services, until
from stratamq_torture.processes.wire import NOWHERE, Wire
from stratamq_torture.replicas.brokers import NAMES, Brokers
from stratamq_torture.replicas.trial import DRAWN, LOSSES
from stratamq_torture.trial import TrialFailedError

ROOMS = (COMMITLOG, DISPATCHER, DELIVERY)
SETTINGS = (
    "commitlog.segment_bytes=1048576",
    "commitlog.reserve_bytes=0",
    "commitlog.followers=dispatcher,delivery",
    "delivery.save_interval_ms=20",
    "delivery.shared_attempts=10000",
    "delivery.transaction_timeout_ms=0",
    "delivery.transaction_check_interval_ms=1000",
    "delivery.transaction_check_max=10000",
)
PROGRESS_S = 60.0


class Site(ABC):
    """`with` it a broker runs, or two of one name. `target`: where clients find the master."""

    rounds = 10
    """So many are played on one store."""
    target: str | Path
    promotions = 0
    two_masters_until = 0.0
    """By `time.monotonic`. A master that did not know of its demotion (docs/status.md) may have
    answered calls that began before. What the present one hands out is in its log's records."""

    @staticmethod
    def obstacle() -> str:
        """Why this can not be done here; empty when it can."""
        return ""

    @property
    @abstractmethod
    def root(self) -> Path:
        """The store of the present master."""

    @property
    @abstractmethod
    def kills(self) -> int:
        """Processes that died by SIGKILL here."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def strike(self, chance: Random) -> str:
        """One event, and its name for the report; all services run at its end."""

    def calm(self) -> None:  # noqa: B027
        """Before what is left to do is waited for."""

    @abstractmethod
    def stop(self) -> list[str]:
        """The load at rest: a clean stop, and what is wrong besides what the ledger knows."""

    def excuses(self, fault: str) -> bool:
        """Whether the audit's fault is a known defect of the audit's (docs/status.md)."""
        return False


class Kills(Site):
    """SIGKILL to some of log, dispatcher and delivery; they are started in any order."""

    rounds = 50

    def __init__(
        self,
        directory: Path,
        settings: Sequence[str] = SETTINGS,
        root: Path | None = None,
        prefixes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.target = self._root = root or directory / "store"
        self.services = Services(self._root, directory / "logs", settings, prefixes)
        self._stack = ExitStack()

    @property
    def root(self) -> Path:
        return self._root

    @property
    def kills(self) -> int:
        return self.services.kills

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.services)
            self.services.start(ROOMS)
            self._client = stack.enter_context(
                connect(self._root, timeout_s=10, retry_timeout_s=PROGRESS_S)
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def strike(self, chance: Random) -> str:
        rooms = self._kill_some(chance)
        self._wait_ready(rooms)
        return "+".join(sorted(rooms))

    def _kill_some(self, chance: Random) -> Sequence[str]:
        rooms = chance.sample(ROOMS, chance.choice((1, 1, 2, 3)))
        self.services.kill(*rooms)
        self._spawn(chance, rooms)
        return rooms

    def _spawn(self, chance: Random, rooms: Sequence[str]) -> None:
        """In any order."""
        for room in chance.sample(rooms, len(rooms)):
            self.services.spawn(room)

    def _wait_ready(self, rooms: Sequence[str]) -> None:
        for room in rooms:
            self.services.wait_ready(room)

    def stop(self) -> list[str]:
        self.services.stop()
        return []


class FullVolumes(Kills):
    """Another program fills the volume, nearly or to its last byte, and frees it later; every other
    time some services are killed and started meanwhile."""

    rounds = 10
    VOLUME_BYTES = 192 << 20
    LONGEST_S = 3.0

    def __init__(self, directory: Path) -> None:
        self._volume = volume.Volume(directory, self.VOLUME_BYTES)
        settings = (*SETTINGS, *DEFAULT_RATIOS, "commitlog.reserve_bytes=1048576")
        super().__init__(directory, settings, self._volume.path / "store")

    @staticmethod
    def obstacle() -> str:
        return volume.obstacle()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._volume)
            super().__enter__()
            stack.push(self._stack.pop_all())
            self._stack = stack.pop_all()
        return self

    def strike(self, chance: Random) -> str:
        ratio, kills = chance.choice((0.95, 1.0)), chance.random() < 0.5
        self._volume.fill(ratio)
        self._takes_messages(False)
        # One that starts on a full volume announces itself when there is room for its run file.
        killed = self._kill_some(chance) if kills else ()
        until(lambda: False, chance.random() * self.LONGEST_S, self.LONGEST_S)
        self._volume.free()
        self._wait_ready(killed)
        self._takes_messages(True)
        return f"filled to {ratio:.0%}{' with kills' if kills else ''}"

    def _takes_messages(self, wanted: bool) -> None:
        if not until(lambda: self._client.log_state().writable is wanted, PROGRESS_S, 0.05):
            state = "refuses" if wanted else "takes"
            raise TrialFailedError(
                f"the log {state} messages {PROGRESS_S} s after its volume was "
                f"{'freed' if wanted else 'filled'}"
            )


class LostMasters(Site):
    """The SYNC_MASTER of two brokers is killed, paused or cut off from its slave, which is
    promoted; it comes back, and follows."""

    LONGEST_ABSENCE_S = 1.5

    def __init__(self, directory: Path) -> None:
        settings = (*SETTINGS, "commitlog.slave_timeout_ms=500")
        self._brokers = Brokers(directory, settings, Role.SYNC_MASTER, (*ROOMS, HA))
        self._master = NAMES[0]
        # Their addresses stay when the services are started again at others.
        self._doors = [Wire(partial(self._address, name)) for name in NAMES]
        self.target = ",".join(door.address for door in self._doors)

    def _address(self, name: str) -> str:
        endpoint = discovery.read(self._brokers[name].root, COMMITLOG)
        return endpoint.address if endpoint is not None else NOWHERE

    @property
    def root(self) -> Path:
        return self._brokers[self._master].root

    @property
    def kills(self) -> int:
        return self._brokers.kills

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for door in self._doors:
                stack.enter_context(door)
            stack.enter_context(self._brokers)
            self._brokers.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def strike(self, chance: Random) -> str:
        brokers, how, old = self._brokers, chance.choice(DRAWN), self._master
        self._master = brokers.other(old).name
        self.two_masters_until = math.inf
        LOSSES[how].strike(brokers, old)
        brokers.promote(self._master)
        self.promotions += 1
        longest_s = self.LONGEST_ABSENCE_S
        until(lambda: False, chance.random() * longest_s, longest_s)
        LOSSES[how].undo(brokers, old)
        brokers.serves(self._master)
        self.two_masters_until = time.monotonic()
        return f"master {how}"

    def stop(self) -> list[str]:
        brokers = self._brokers
        brokers.ends_alike()
        for name in (self._master, brokers.other(self._master).name):
            brokers[name].services.stop()
        difference = brokers.difference()
        return [difference] if difference else []


class MovedClocks(Kills):
    """The wall clock of all services jumps by an hour or a day, forward or back, while they run or
    are down."""

    rounds = 10
    MINUTE_MS = 60_000
    AHEAD_MS = (0, 59 * MINUTE_MS, -60 * MINUTE_MS, 1440 * MINUTE_MS, -1440 * MINUTE_MS)
    """Before or behind the true time. The log believes 59 minutes, and not a day
    (`clock_jump_limit_ms`)."""
    REST_S = 4.0
    """The delivery compares the store's clock every two seconds."""
    LONGEST_LAG_MS = 20_000
    BY_TIME = re.compile(
        r"delivered at (?P<copy>\d+), (?P<early>\d+) ms early"
        r"|to two workers at once: the record at (?P<record>\d+)"
    )

    def __init__(self, directory: Path) -> None:
        self._clock = MovedClock(directory / "clock")
        self._farthest_ms = 0
        self.put_back: list[range] = []
        """From where to where the log had its records while the delivery learnt of it."""
        super().__init__(directory, prefixes=self._clock.prefixes(ROOMS))

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._clock.close()

    def strike(self, chance: Random) -> str:
        before_ms, begin = self._clock.ahead_ms, self._log_end()
        ahead_ms = chance.choice([one for one in self.AHEAD_MS if one != before_ms])
        is_down = chance.random() < 0.3
        if is_down:
            self.services.kill_all()
        self._move(ahead_ms)
        if is_down:
            self._spawn(chance, ROOMS)
            self._wait_ready(ROOMS)
        until(lambda: False, self.REST_S, self.REST_S)
        if ahead_ms < before_ms:
            self.put_back.append(range(begin, self._log_end()))
        jump = f"{(ahead_ms - before_ms) // self.MINUTE_MS:+} minutes"
        return f"clock {jump}{' while down' if is_down else ''}"

    def _move(self, ahead_ms: int) -> None:
        self._clock.move(ahead_ms)
        self._farthest_ms = max(self._farthest_ms, ahead_ms)

    def _log_end(self) -> int:
        return self._client.log_state().appended_offset

    def calm(self) -> None:
        """What was stored under the latest time of all is due soon."""
        self._move(self._farthest_ms)
        self._client.admin.trust_clock()

    def excuses(self, fault: str) -> bool:
        """Just after a clock was put back records have the time of before."""
        if (found := self.BY_TIME.search(fault)) is None:
            return False
        place = int(found["copy"] or found["record"])
        is_short = int(found["early"] or 0) <= self.LONGEST_LAG_MS
        return is_short and any(place in records for records in self.put_back)


EVENTS: dict[str, type[Kills] | type[LostMasters]] = {
    "kill": Kills,
    "fill": FullVolumes,
    "promote": LostMasters,
    "clock": MovedClocks,
}
