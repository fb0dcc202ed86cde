"""One broker: its log and its delivery service, the real engines on a simulated disk, stepped by
chance; and what replication does to its log.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_parts import ThisProcess, Workers
from stratamq_commitlog.messages import LogListener
from stratamq_commitlog.recovery.cut_file import CutOrder

from stratamq.files.port import Clock
from stratamq.files.simulated import SimulatedScheduler
from stratamq.formats.log_state import Role
from stratamq_torture.deliveries.service import SEGMENT_BYTES, Machine, Service, Settings
from stratamq_torture.trial import Violation

SETTLE_STEPS = 2_000
BLANK_BYTES = 8


class Broker(Machine):
    """`act` does one of the things that could happen next."""

    def __init__(
        self, name: str, role: Role, settings: Settings, chance: random.Random, clock: Clock
    ) -> None:
        super().__init__(name, settings, chance, clock)
        self.service: Service | None = None
        self._role = role
        self._starts = 0
        self._files: Any = None
        self.scheduler = SimulatedScheduler(chance)

    # --- lives ---

    def start(self) -> None:
        if self.log is None:
            self._start_log()
        if self.service is None:
            self.service = Service(self)

    def _start_log(self) -> None:
        self._starts += 1
        self._files = self.disk.files(name=f"{self.name}-log")
        self.scheduler = SimulatedScheduler(self.chance)
        config = CommitLogConfig(
            root=Path("simulated"),
            segment_bytes=SEGMENT_BYTES,
            flush_disk_type=self.settings.flush,
            flush_interval_ms=500,
            reserve_bytes=0,
            property_checksum=False,
            default_topic_queues=2,
            followers=(),
            clock_jump_limit_ms=self.settings.clock_limit_ms,
            role=self._role.name,
        )
        log = CommitLog(
            self._files,
            config,
            clock=self.clock,
            random=random.Random(self.chance.getrandbits(32)),
            workers=Workers(self.scheduler.worker(), self.scheduler.worker()),
            process=ThisProcess(self._starts),
            listener=LogListener(),
        )
        log.open()
        self.log = log
        self.newest, self.late = [], []

    def kill_log(self) -> None:
        if self.log is None:
            return
        self._files.kill()
        self.scheduler.discard()
        self.log = None
        if self.service is not None:
            self.service.log_died()
        self.newest, self.late = [], []

    def kill_service(self) -> None:
        if self.service is not None:
            self.service.die()
            self.service = None

    def lose_power(self) -> None:
        self.kill_service()
        self.kill_log()
        self.disk.crash(self.chance)
        self.queues.restart()

    def died(self) -> None:
        """A planned crash point was met."""
        if self._files is not None and self._files.dead:
            self.kill_log()
        if self.service is not None and self.service.files.dead:
            self.kill_service()

    # --- steps ---

    def act(self, step: str) -> None:
        log, service = self.log, self.service
        match step:
            case "pass":
                if log is not None and log.gate.open:
                    log.run_pass()
            case "work":
                self.scheduler.run_one()
            case "dispatch":
                if self.queues.is_up:
                    self.queues.look()
            case "late":
                if self.late and (late := self.chance.choice(self.late)).sent:
                    late.read()
            case "save":
                if service is not None:
                    service.save()
                    service.lanes.run_one()
            case "follow":
                if service is not None:
                    service.follow(self.chance.randrange(1, 4))
            case _:
                if service is not None:
                    getattr(service, step)()

    def settle_log(self) -> None:
        """Until nothing moves in the log."""
        log = self.log
        assert log is not None
        for _ in range(SETTLE_STEPS):
            if log.gate.open:
                log.run_pass()
            if not self.scheduler.run_until_idle() and not log.appender.waiting:
                return
        raise Violation("rest", f"the log of {self.name} does not come to rest")

    def tick(self) -> None:
        if self.log is not None:
            self.log.tick()

    # --- replication, as the slave's and the master's services do it together ---

    def ask(self, call: Callable[[Callable[[Any], None]], object]) -> Any:
        """A change of the log, and its answer."""
        answers: list[Any] = []
        call(answers.append)
        self.settle_log()
        (answer,) = answers
        return answer

    def take_from(self, master: "Broker") -> int:
        """A slave is cut to the master's history, and gets what it lacks. Returns how far both
        logs were the same."""
        log, theirs = self.log, master.log
        assert log is not None and theirs is not None
        common, end = self.same_as(master), theirs.offsets.appended
        generations = tuple(theirs.state.generations)
        cut = self.ask(
            lambda done: log.cut(CutOrder(common, False, generations, log.offsets.confirmed), done)
        )
        if cut.error is not None:
            raise Violation("cut", f"{self.name} is not cut: {cut.error}")
        if cut.reopen:
            log.close()
            log.open()
            self.newest, self.late = [], []
        self.queues.forget()
        at, confirmed = common, theirs.offsets.confirmed
        while at < end:
            size = min(end, (at // SEGMENT_BYTES + 1) * SEGMENT_BYTES) - at
            data = master.disk.read(at, size, SEGMENT_BYTES)
            error = self.ask(
                lambda done, at=at, data=data: log.append_data(
                    log.generation, at, data, done, confirmed
                )
            )
            if error is not None:
                raise Violation("replica", f"{self.name} does not take what is at {at}: {error}")
            at += size
        return common

    def same_as(self, other: "Broker") -> int:
        """Where the first frame begins that the logs do not share."""
        assert self.log is not None and other.log is not None
        mine, theirs = self.log.offsets.appended, other.log.offsets.appended
        end, at = min(mine, theirs), 0
        while at < end:
            size = min(end, at + SEGMENT_BYTES) - at
            if self.disk.read(at, size, SEGMENT_BYTES) != other.disk.read(at, size, SEGMENT_BYTES):
                return self._differs_at(other, at, end)
            at += size
        return end

    def _differs_at(self, other: "Broker", at: int, end: int) -> int:
        """Where the first frame or blank begins that the logs do not share, from the segment `at`
        on, and below `end`."""

        def same(offset: int, size: int) -> bool:
            mine = self.disk.read(offset, size, SEGMENT_BYTES)
            return mine == other.disk.read(offset, size, SEGMENT_BYTES)

        for offset, raw in other.disk.frames(at, other.log.offsets.appended, SEGMENT_BYTES):
            if offset != at and not same(at, BLANK_BYTES):
                return at
            if offset + len(raw) > end or not same(offset, len(raw)):
                return min(offset, end)
            at = offset + len(raw)
        return at
