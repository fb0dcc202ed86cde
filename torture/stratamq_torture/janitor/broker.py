"""The log that a janitor looks at: the real engine on a simulated disk, and what the janitor asks
of it. It knows when each segment's newest message was stored."""

import random
from pathlib import Path

from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_parts import Workers
from stratamq_commitlog.messages import PutMessage, PutResult

from stratamq.client.values import GroupQueue, LogState, ScrubState, Unit
from stratamq.files.simulated import SimulatedDisk, SimulatedScheduler
from stratamq.formats.hosts import Host
from stratamq_torture.janitor.clock import JumpingClock

SEGMENT_BYTES = 2048
BODY_BYTES = 700


class WatchedLog:
    """`stored_ms`: by the start of each segment, when its newest message was stored, by the wall or
    in truth, whichever is the earlier."""

    def __init__(self, chance: random.Random, clock: JumpingClock) -> None:
        self.stored_ms: dict[int, int] = {}
        self.acknowledged = 0
        self._clock = clock
        self._disk = SimulatedDisk(chance.getrandbits(32), clock=clock)
        self._scheduler = SimulatedScheduler(chance)
        config = CommitLogConfig(
            root=Path("store"),
            segment_bytes=SEGMENT_BYTES,
            followers=(),
            reserve_bytes=0,
            clock_jump_limit_ms=0,  # messages too are stored under any time
        )
        self._engine = CommitLog(
            self._disk.files(),
            config,
            clock=clock,
            random=chance,
            workers=Workers(self._scheduler.worker(), self._scheduler.worker()),
            pid=1,
        )
        self._engine.open()
        self.files = self._disk.files()

    def store(self, count: int) -> None:
        for _ in range(count):
            message = PutMessage(
                topic="orders",
                body=bytes(BODY_BYTES),
                queue_id=0,
                born_host=Host("10.1.2.3", 4567),
                born_timestamp_ms=1,
            )
            self._engine.put([message], False, self._stored)
            self._settle()

    def pass_time(self, milliseconds: int) -> None:
        self._clock.advance_ms(milliseconds)
        for _ in range(5):  # the checkpoint, which the janitor reads, is written by a later tick
            self._clock.advance_ms(1_000)
            self._engine.tick()
            self._settle()

    def _stored(self, results: list[PutResult]) -> None:
        (result,) = results
        assert result.physical_offset is not None
        start = result.physical_offset - result.physical_offset % SEGMENT_BYTES
        self.stored_ms[start] = self._clock.true_ms + min(0, self._clock.wrong_ms)
        self.acknowledged += 1

    def _settle(self) -> None:
        while True:
            self._engine.run_pass()
            if not self._scheduler.run_until_idle() and not self._engine.appender.waiting:
                return

    # --- what a janitor asks ---

    def log_state(self) -> LogState:
        self._clock.touch()
        status = self._engine.status()
        return LogState(
            minimum_offset=status.minimum,
            appended_offset=status.appended,
            flushed_offset=status.flushed,
            confirmed_offset=status.confirmed,
            role=None,
            generation=status.generations[-1].number,
            writable=status.writable,
            not_writable_reason=status.not_writable_reason,
            segment_bytes=status.segment_bytes,
            segment_count=status.segment_count,
            followers=(),
            disk_used_ratio=status.disk_used_ratio,
            sync_flush=True,
            recovery_report=(),
            broker_name="",
            broker_id=0,
            scrub=ScrubState(0, False, 0, 0, 0, ()),
        )

    def groups(self) -> list[GroupQueue]:
        return []

    def units(self, topic: str, queue_id: int, offset: int, count: int = 32) -> list[Unit]:
        return []

    def delete_below(
        self, offset: int, *, max_segments: int, urgent: bool
    ) -> tuple[int, tuple[str, ...]]:
        self._clock.touch()
        minimum, deleted = self._engine.delete_below(offset, max_segments, urgent)
        return minimum, tuple(deleted)
