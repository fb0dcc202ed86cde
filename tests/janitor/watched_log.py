"""A real log in virtual time, and janitors that look at it.

log = WatchedLog("2026-03-28T12:00")
log.fill(4)                      four full segments, stored now, and the one in use
janitor = log.janitor()
log.pass_hours(100); janitor.run()
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from stratamq_commitlog.engine import CommitLog
from stratamq_janitor.cleaner import Cleaner, RetentionSwitch
from stratamq_janitor.clock_watch import ClockWatch
from stratamq_janitor.config import JanitorConfig

from stratamq.client.values import FollowerServiceState, GroupQueue, Unit
from stratamq.errors import UnavailableError
from stratamq.files.metadata import MetadataFile
from stratamq.formats.log_state import LogState
from stratamq.formats.store_paths import JANITOR_STATE_PATH
from tests.support.disks import write_file
from tests.support.logs import Store, body_for, message, segment_path

SEGMENT = 2048
HOUR_MS = 3_600_000


class WatchedLog:
    """`services` is what a janitor asks; the log's own engine answers."""

    def __init__(self, local: str, *, started: bool = True) -> None:
        """`local`: the wall's time in the machine's zone."""
        self.store = Store(SEGMENT)
        self.clock = self.store.clock
        self.clock.set_wall_ms(wall_ms(local))
        self.on_log_state: Callable[[], None] = lambda: None
        """Called whenever a janitor asks for the log's state."""
        self.needed_offset: int | None = None
        """Below it no message waits for its delivery; None: the delivery does not answer."""
        self.delivery_serves = True
        if started:
            self.store.start()

    @property
    def engine(self) -> CommitLog:
        assert self.store.log is not None
        return self.store.log

    @property
    def minimum(self) -> int:
        return self.engine.status().minimum_offset

    def adopt(self) -> None:
        """Another program continues with the store, and StrataMQ is started again."""
        self.store.stop()
        self.rewrite("lock", b"lock")
        self.store.start()

    def rewrite(self, path: str, data: bytes) -> None:
        """Another program writes a file."""
        files = self.store.new_files()
        files.unlink(path)
        write_file(files, path, data)

    def fill(self, segments: int) -> None:
        """So many more segments full, and one in use."""
        target = max(1, self.engine.status().segment_count) + segments
        while self.engine.status().segment_count < target:
            self.store.put_all(message(body_for(1000)))
        self.store.pass_time(3_000, ticks=3)

    def pass_hours(self, hours: float) -> None:
        self.store.pass_time(round(hours * HOUR_MS))
        self.store.pass_time(100, ticks=20)

    def set_wall(self, local: str) -> None:
        """An operator sets the clock."""
        self.clock.set_wall_ms(wall_ms(local))

    def touch(self, segment: int) -> None:
        """Set the modification time of a segment to now."""
        self.store.disk.files().set_mtime(
            segment_path(segment * SEGMENT), self.clock.wall_ms() * 1_000_000
        )

    def segments(self) -> list[int]:
        return [start // SEGMENT for start in self.store.segments()]

    def janitor(self, boot: str = "first", **settings: Any) -> Cleaner:
        """A janitor that has just been started."""
        files = self.store.new_files()
        config = JanitorConfig(root=Path("store"), **settings)
        watch = ClockWatch(
            MetadataFile(files, JANITOR_STATE_PATH),
            boot,
            config.clock_tolerance_ms,
            config.clock_grace_ms,
            self.clock,
        )
        retention = RetentionSwitch(files, config.enabled)
        return Cleaner(files, self, self, config, retention, watch)

    # --- what a janitor asks ---

    def log_state(self) -> LogState:
        self.on_log_state()
        return self.engine.status()

    def groups(self) -> list[GroupQueue]:
        return []

    def units(self, topic: str, queue_id: int, offset: int, count: int = 32) -> list[Unit]:
        return []

    def delivery_state(self) -> FollowerServiceState:
        if self.needed_offset is None:
            raise UnavailableError("nobody listens")
        end, needed = self.engine.status().appended_offset, self.needed_offset
        return FollowerServiceState(end, end, end, 1, self.delivery_serves, (), "", needed)

    def delete_below(
        self, offset: int, *, max_segments: int, urgent: bool
    ) -> tuple[int, tuple[str, ...]]:
        minimum, deleted = self.engine.delete_below(offset, max_segments, urgent)
        return minimum, tuple(deleted)


def wall_ms(local: str) -> int:
    """Milliseconds since 1970 of a time in the machine's zone."""
    return round(datetime.fromisoformat(local).astimezone().timestamp() * 1000)
