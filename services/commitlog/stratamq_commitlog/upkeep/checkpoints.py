"""RocketMQ's `checkpoint`: store times and offsets up to which the files are on the disk."""

import logging
from collections import deque
from contextlib import closing

from stratamq.errors import StrataError
from stratamq.files.port import Clock, EntryKind, Files
from stratamq.formats.checkpoint import (
    CHECKPOINT_FIELDS_BYTES,
    CHECKPOINT_FILE_BYTES,
    Checkpoint,
    encode_checkpoint,
)
from stratamq.formats.store_paths import ASIDE_DIRECTORY, CHECKPOINT_PATH
from stratamq_commitlog.log_state import LogOffsets
from stratamq_commitlog.recovery.aside import copy_aside, free_path
from stratamq_commitlog.replica.follow_hub import FollowHub
from stratamq_commitlog.upkeep.jobs import Jobs
from stratamq_commitlog.write.appender import Appender

log = logging.getLogger(__name__)


class Checkpoints:
    """Saves the checkpoint of one open log. `followers`: those that must have dispatched data on
    the disk."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        offsets: LogOffsets,
        appender: Appender,
        hub: FollowHub,
        jobs: Jobs,
        *,
        followers: tuple[str, ...],
    ) -> None:
        self._files = files
        self._clock = clock
        self._offsets = offsets
        self._appender = appender
        self._hub = hub
        self._jobs = jobs
        self._followers = followers
        self._stored = Checkpoint()
        self._unflushed: deque[tuple[int, int]] = deque()
        """(appended offset, store time there) of moments that are not durable yet."""
        self._physic_timestamp_ms = 0

    def start(self, before: Checkpoint, store_timestamp_ms: int) -> None:
        """Blocking: the first of a start, durable on return. `before`: as it was found;
        `store_timestamp_ms`: of the newest message. OSError."""
        self._physic_timestamp_ms = store_timestamp_ms
        index_ms = min(before.index_msg_timestamp_ms, store_timestamp_ms)
        queues_ms = min(before.logics_msg_timestamp_ms, store_timestamp_ms)
        claimed = before.physic_msg_timestamp_ms, before.logics_msg_timestamp_ms
        if max(*claimed, before.index_msg_timestamp_ms) > store_timestamp_ms:
            self._keep()
        self._write(
            Checkpoint(
                physic_msg_timestamp_ms=min(before.physic_msg_timestamp_ms, store_timestamp_ms),
                logics_msg_timestamp_ms=self._dispatched_ms(queues_ms, index_ms),
                index_msg_timestamp_ms=index_ms,
                confirm_phy_offset=self._offsets.confirmed,
            )
        )

    def _keep(self) -> None:
        """A copy of a checkpoint that names a later message than the log has: it is lowered."""
        name = f"{ASIDE_DIRECTORY}/{CHECKPOINT_PATH}-{self._clock.wall_ms()}"
        target = free_path(self._files, name)
        with closing(self._files.open(CHECKPOINT_PATH)) as source:
            copy_aside(self._files, target, source, 0, source.size)
        log.info("the checkpoint names a later message than the log has", extra={"kept": target})

    def every_second(self) -> None:
        checkpoint = self._next()
        if checkpoint == self._stored:
            return

        def written(_: None, error: StrataError | None) -> None:
            if error is None:
                self._stored = checkpoint

        self._jobs.submit("checkpoint", lambda: self._write(checkpoint), written)

    def close(self) -> None:
        """Blocking: the last one, durable on return. OSError."""
        self._write(self._next())

    def _next(self) -> Checkpoint:
        """What the files may claim now: store times of messages that are on the disk."""
        offsets, appender, old = self._offsets, self._appender, self._stored
        if offsets.flushed == offsets.appended:
            # A pass that failed has advanced the appender's time: an empty log has no message yet.
            if offsets.appended > offsets.minimum:
                self._physic_timestamp_ms = appender.store_timestamp_ms
            self._unflushed.clear()
        else:
            newest = (offsets.appended, appender.store_timestamp_ms)
            if not self._unflushed or self._unflushed[-1] != newest:
                self._unflushed.append(newest)
            while self._unflushed and self._unflushed[0][0] <= offsets.flushed:
                self._physic_timestamp_ms = self._unflushed.popleft()[1]
        queues_ms = self._covered_ms("dispatcher", old.logics_msg_timestamp_ms)
        index_ms = self._covered_ms("index", old.index_msg_timestamp_ms)
        return Checkpoint(
            physic_msg_timestamp_ms=self._physic_timestamp_ms,
            logics_msg_timestamp_ms=self._dispatched_ms(queues_ms, index_ms),
            index_msg_timestamp_ms=index_ms,
            master_flushed_offset=old.master_flushed_offset,
            confirm_phy_offset=min(offsets.confirmed, offsets.flushed),
            logics_physical_offset=old.logics_physical_offset,
        )

    def _dispatched_ms(self, queues_ms: int, index_ms: int) -> int:
        """Where RocketMQ may begin to dispatch again after a crash.

        It looks at the older of physic and logics alone, and deletes index files that end after the
        index's time: what these held must be dispatched again.
        """
        return min(queues_ms, index_ms) if "index" in self._followers else queues_ms

    def _covered_ms(self, follower: str, before: int) -> int:
        """The store time that a follower reported as durable; before its first report, the
        checkpoint's."""
        state = self._hub.followers.get(follower)
        return before if state is None else state.durable_store_timestamp_ms

    def _write(self, checkpoint: Checkpoint) -> None:
        entry = self._files.entry(CHECKPOINT_PATH)
        if entry is not None and (
            entry.kind is not EntryKind.FILE or entry.size < CHECKPOINT_FILE_BYTES
        ):
            target = f"{ASIDE_DIRECTORY}/{CHECKPOINT_PATH}"
            self._files.make_directory(ASIDE_DIRECTORY)
            if entry.kind is EntryKind.DIRECTORY:
                target = f"{target}-{self._clock.wall_ms()}"
            self._files.replace(CHECKPOINT_PATH, target)
            entry = None
        if entry is None:
            self._files.create(CHECKPOINT_PATH, CHECKPOINT_FILE_BYTES)
        with closing(self._files.open(CHECKPOINT_PATH, writable=True)) as file:
            file.write(0, encode_checkpoint(checkpoint)[:CHECKPOINT_FIELDS_BYTES])
            file.flush()
        self._stored = checkpoint
