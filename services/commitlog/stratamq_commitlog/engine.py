"""The commit log of one broker: opens, recovers, appends, flushes, tells its followers, closes.

The engine starts no thread and knows no event loop. Its driver calls `run_pass` after `wake`, and
`tick` every 50 ms or so; blocking work goes to two workers, and comes back between calls.

Invariants: minimum ≤ flushed ≤ appended; confirmed never goes back within a generation; bytes below
*flushed* are durable; nothing is acknowledged by a place that did not see *flushed* (or, under
ASYNC_FLUSH, *appended*).
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from stratamq.errors import (
    BusyError,
    NotWritableError,
    StoreRefusedError,
    StrataError,
    UnavailableError,
)
from stratamq.files.origin import store_origin
from stratamq.files.port import Clock, Files, Lock, Random, Worker
from stratamq.formats.delay import parse_delay_levels
from stratamq_commitlog import cutting, opening, own_state, recovery, role_change, slave_data
from stratamq_commitlog.appender import Appender, BatchItem, PutItem, failed, no_segment
from stratamq_commitlog.batch_check import FrameRules
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.follow_hub import Appended, FollowHub, LogOffsets
from stratamq_commitlog.group_commit import GroupCommit
from stratamq_commitlog.housekeeping import Housekeeping
from stratamq_commitlog.log_reads import LogReads
from stratamq_commitlog.master_confirmed import MasterConfirmed
from stratamq_commitlog.membership import Membership
from stratamq_commitlog.messages import (
    BatchDone,
    FrameBatch,
    Generation,
    LogStatus,
    PutDone,
    PutMessage,
    PutStatus,
    Role,
)
from stratamq_commitlog.prepare import (
    Preparer,
    encode_store_host,
)
from stratamq_commitlog.puts import Puts
from stratamq_commitlog.queue_offsets import QueueOffsets
from stratamq_commitlog.replicas import Replica, Replicas
from stratamq_commitlog.reserve import Reserve
from stratamq_commitlog.roles import Roles
from stratamq_commitlog.scrubber import Scrubber
from stratamq_commitlog.segment_set import SegmentSet
from stratamq_commitlog.store_clock import StoreClock
from stratamq_commitlog.topic_table import TopicTable
from stratamq_commitlog.walk_ahead import Walkers
from stratamq_commitlog.write_gate import WriteGate

log = logging.getLogger(__name__)

QUEUES_PER_STEP = 1_000

Finish = Callable[[PutStatus, StrataError | None], None]


class CommitLog:
    """One log. `open` first; everything else raises UnavailableError before and after."""

    def __init__(
        self,
        files: Files,
        config: CommitLogConfig,
        *,
        clock: Clock,
        random: Random,
        flush_worker: Worker,
        allocate_worker: Worker,
        scrub_worker: Worker | None = None,
        walkers: Walkers | None = None,
        pid: int = 0,
        boot: str = "",
        incarnation: int = 1,
    ) -> None:
        """`incarnation` is another one in each process, and not 0."""
        self.incarnation = incarnation
        """Another one after each opening: the order of the queue table may be another one."""
        self.wake: Callable[[], None] | None = None
        """Set by the driver: call `run_pass` soon."""
        self._files = files
        self.config = config
        self.clock = clock
        self.store_clock = StoreClock(files, clock, config.clock_jump_limit_ms, boot)
        self.random = random
        self._flush_worker = flush_worker
        self._allocate_worker = allocate_worker
        self._scrub_worker = scrub_worker or allocate_worker
        self._walkers = walkers
        self._pid = pid
        self._lock: Lock | None = None
        self.sync_flush = config.flush_disk_type == "SYNC_FLUSH"
        self.roles = Roles(files, Role(config.role))
        self.membership = Membership(files, allocate_worker, config.required_replicas)
        self.membership.changed = partial(role_change.members_changed, self)
        self.role = self.roles.state.role
        self.tail_unconfirmed = False
        """What may be on this broker only is neither shown nor confirmed."""
        self.master_confirmed = MasterConfirmed(files)
        self.store_host = encode_store_host(config.store_host)
        self.replicas = Replicas(config.required_replicas, config.slave_max_gap_bytes)
        self.report: list[str] = []
        self._state = own_state.OwnState(files)
        self.topics = TopicTable(
            files,
            clock,
            auto_create=config.auto_create_topics,
            default_queues=config.default_topic_queues,
            version2=config.write_v2,
            incarnation=incarnation,
            page_entries=config.page_entries,
        )
        self.gate = WriteGate(config, self.role)
        self.puts = Puts(config, self.gate, self._obstacle, self.topics, self.store_clock)
        self._reserve = Reserve(files, config.reserve_bytes)
        self._next_flush_ns = 0
        self.untold_queues = False
        """A master's queue table brought queues that followers have not heard of."""
        self._no_room: StrataError | None = None
        """Appends were refused because no segment could be allocated, and none could since."""

    # --- start ---

    def open(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Lock, recover, begin a generation. Blocking. Raises StoreRefusedError.

        The lock is held until the open log closes or, when this raises, until here: `close` in
        another thread does not let go of it.
        """
        try:
            lock, foreign = opening.take_lock(self._files, self._pid, self._adopt)
            try:
                self._open_store(foreign, progress)
            except BaseException:
                lock.close()
                raise
        except OSError as error:
            raise StoreRefusedError(
                f"the store cannot be opened: {error.filename or ''} {error.strerror or error}"
            ) from error
        self._lock = lock
        self.gate.open, self.gate.closing = True, False
        self.segments.keep_ahead(self.offsets.appended)
        for line in self.report:
            log.info("recovery", extra={"detail": line})

    def _open_store(self, foreign: bool, progress: Callable[[int, int], None] | None) -> None:
        """Nothing is given to a worker: when this fails, nobody writes any more."""
        self._reserve.release_if_short()
        opened = opening.open_store(
            self._files, self.config, self._state, foreign, self.clock, progress, self._walkers
        )
        self.report = opened.report
        role = role_change.start(self, unclean=opened.unclean and opened.history_known)
        self.report += self.topics.load(foreign=opened.foreign)
        generations = opening.begin_generation(self._state, opened, self.random, role)
        self.roles.keep(generations[-1].term)
        self._assemble(opened.recovered, generations)
        role_change.hold_back(self, opened.checkpoint)
        self.offsets.sealed_from = opening.seal(self._state, self.config, role.state.role, opened)
        self.housekeeping.start(opened.checkpoint, opened.recovered)
        self._state.set_found_clean(False)
        cutting.forget(self._files)
        self._reserve.keep()

    def _adopt(self) -> None:
        """The store is new, or another program went on with it: nothing that we knew of it counts
        any more."""
        self._state.discard()
        if recovery.is_empty(self._files):
            store_origin(self._files, self.clock)
        self.topics.adopt()

    def _assemble(self, recovered: recovery.Recovered, generations: list[Generation]) -> None:
        config, end = self.config, recovered.end
        self.segment_bytes = recovered.segment_bytes
        self.offsets = LogOffsets(recovered.minimum, end, end, end, end)
        self.hub = FollowHub(recovered.segment_bytes, self.offsets)
        self.hub.generations = generations
        self.hub.is_slave = self.role is Role.SLAVE
        self.segments = SegmentSet(
            self._files,
            self._allocate_worker,
            recovered.segment_bytes,
            recovered.segments,
            end,
            config.disk_refuse_ratio,
        )
        self.segments.on_allocated = self._allocated
        self.commit = GroupCommit(
            self._flush_worker,
            self.segments.flush_task,
            self.clock,
            flushed=end,
            timeout_ms=config.sync_flush_timeout_ms,
        )
        self.incarnation += 1
        self.commit.on_flushed = self._flushed
        self.commit.on_failed = self._flush_failed
        rules = FrameRules(
            store_host=self.store_host,
            max_message_bytes=config.max_message_bytes,
            version2=config.write_v2,
            property_checksum=config.property_checksum,
        )
        self.appender = Appender(
            self.segments,
            QueueOffsets(recovered.queues),
            end,
            recovered.store_timestamp_ms,
            clock=self.store_clock,
            rules=rules,
            pass_bytes=config.pass_bytes,
            pass_messages=config.pass_messages,
            commit=self._commit_put,
            on_appended=self._appended,
            on_write_failed=self._write_failed,
        )
        self.discover_topics()
        preparer = Preparer(
            self.topics,
            store_host=self.store_host,
            delay_levels_ms=parse_delay_levels(config.message_delay_level),
            max_message_bytes=config.max_message_bytes,
            segment_bytes=recovered.segment_bytes,
            property_checksum=config.property_checksum,
            write_v2=config.write_v2,
        )
        self.puts.begin(preparer, self._enqueue, recovered.segment_bytes)
        self.reads = LogReads(self._files, recovered.segment_bytes, self.offsets)
        self.housekeeping = Housekeeping(
            self, self._files, self._state, self._allocate_worker, self._reserve
        )
        self.scrubber = Scrubber(
            self._files, self._scrub_worker, self.segments, self.offsets, config, self.clock
        )
        self.report += self.scrubber.load()
        self.store_clock.load(recovered.store_timestamp_ms)

    # --- what others may know ---

    @property
    def generation(self) -> int:
        return self.hub.generations[-1].number

    @property
    def writable(self) -> tuple[bool, str]:
        """Whether producers are served, and if not why."""
        error = self._obstacle() or self._no_room
        return error is None, "" if error is None else str(error)

    def status(self) -> LogStatus:
        self._require_open()
        writable, reason = self.writable
        offsets = self.offsets
        return LogStatus(
            minimum=offsets.minimum,
            appended=offsets.appended,
            flushed=offsets.flushed,
            confirmed=offsets.confirmed,
            role=self.role,
            generations=tuple(self.hub.generations),
            writable=writable,
            not_writable_reason=reason,
            segment_bytes=self.segment_bytes,
            segment_count=len(self.segments.offsets),
            disk_used_ratio=self.gate.disk_used_ratio,
            recovery_report=tuple(self.report),
        )

    def queue_page(self, position: int, wanted: int) -> tuple[int, list[tuple[str, int, int]], int]:
        """The log's end, the next offsets of a page of queues at that end, and where the next page
        begins; 0: there is none."""
        self._require_open()
        found, following = self.appender.queues.page(position, wanted, self.config.page_entries)
        return self.offsets.appended, found, following

    def discover_topics(self, most: int | None = None) -> None:
        """Topics of queues that are new, of `most` queues at a time: on a slave nobody creates
        them, they come with their master's messages."""
        self.topics.discover(self.appender.queues.undiscovered(most))

    def frame_at(self, physical_offset: int) -> bytes:
        """One whole frame, blocking; see `LogReads.frame_at`."""
        self._require_open()
        return self.reads.frame_at(physical_offset)

    def read_range(
        self, start: int, end: int, max_bytes: int, *, verify: bool = False
    ) -> Iterator[tuple[int, bytes]]:
        """Pieces of the log, each blocking; see `LogReads.range`."""
        self._require_open()
        return self.reads.range(start, end, max_bytes, verify=verify)

    def read_back(self, offset: int, size: int) -> bytes:
        """Bytes of the log as the cache shows them."""
        return self.reads.read_back(offset, size)

    # --- appends ---

    def put(self, messages: Iterable[PutMessage], all_or_nothing: bool, done: PutDone) -> None:
        """Store messages given as fields; `done` gets one result for each, in order."""
        deque(self.puts.messages(messages, all_or_nothing, done), 0)

    def put_raw(self, frames: Iterable[bytes], done: PutDone) -> None:
        """Store complete frames whatever their transaction bits; offsets and times are ours."""
        deque(self.puts.raw(frames, done), 0)

    def put_batch(self, batch: FrameBatch, done: BatchDone, require_replicas: bool = False) -> None:
        """Store ready frames, all or none of them."""
        self.puts.batch(batch, done, require_replicas)

    def append_data(
        self,
        generation: int,
        offset: int,
        data: bytes | memoryview,
        done: Callable[[StrataError | None], None],
        master_confirmed: int | None = None,
    ) -> None:
        """Store a master's bytes at their own offset; see `slave_data.append`."""
        self._require_open()
        slave_data.append(self, generation, offset, data, done, master_confirmed)

    def cut(self, cut: cutting.Cut, done: Callable[[cutting.CutDone], None]) -> None:
        """Cut a slave's log to its master's history; see `cutting.begin`."""
        self._require_open()
        cutting.begin(self, self._files, self._state, self._allocate_worker, cut, done)

    def set_role(self, change: role_change.RoleChange, done: role_change.Done) -> None:
        """Become a master or a slave, for good; see `role_change.begin`."""
        self._require_open()
        role_change.begin(self, self._state, self._allocate_worker, change, done)

    def hold_writes(self, reason: str, has_peers: bool, done: role_change.Done) -> None:
        """Take no messages for the time being, or again; see `role_change.hold`."""
        self._require_open()
        role_change.hold(self, self._allocate_worker, reason, has_peers, done)

    def run_pass(self) -> None:
        """Append what waits, up to the limits of a pass; asks to be called again for the rest."""
        if not self.gate.open or self.gate.stalled:
            return
        more = self.appender.run()
        end = self.appender.appended
        if end != self.offsets.appended:
            self.offsets.appended = end
            if self.sync_flush:
                self.commit.request(end)
            if self.segments.allocation_error is None:
                self.segments.keep_ahead(end)
            self.advance()
        if more:
            self.wake_driver()

    def tick(self) -> None:
        """Everything that depends on time: flushes, time-outs, the disk's level, saved state."""
        if not self.gate.open:
            return
        self.commit.expire()
        now = self.clock.monotonic_ns()
        if not self.sync_flush and now >= self._next_flush_ns:
            self._next_flush_ns = now + self.config.flush_interval_ms * 1_000_000
            self.commit.request(self.offsets.appended)
        self.housekeeping.tick(now)
        if self.role is Role.SLAVE:
            self.discover_topics(QUEUES_PER_STEP)
        self.store_clock.wall_ms()
        self.scrubber.tick()

    def stand_still(self, reason: str) -> None:
        """The disk stands still, "": it moves again. Nothing is written to it meanwhile, and who
        waits to be appended is answered: nothing of it is stored."""
        self.gate.stalled = reason
        if not reason:
            self.wake_driver()
        elif self.role is not Role.SLAVE:
            self.appender.refuse_all(PutStatus.OS_PAGECACHE_BUSY, BusyError(reason))

    # --- topics ---

    def save_topics(self, done: Callable[[StrataError | None], None]) -> None:
        """Make topic settings durable, then `done(None)`."""
        self.housekeeping.save_topics(done)

    # --- the end ---

    def begin_close(self) -> None:
        """Take nothing more, flush, and tell the followers where the log ends."""
        if not self.gate.open or self.gate.closing:
            return
        self.gate.closing = True
        self.appender.refuse_all(
            PutStatus.SERVICE_NOT_AVAILABLE, UnavailableError("the log is closing")
        )
        self.commit.request(self.offsets.appended)
        self._announce_end()

    def close_ready(self) -> bool:
        """Everything is durable here and at every follower that must have reported the end."""
        if not self.gate.open:
            return True
        return (
            self._all_flushed() or self.commit.failure is not None
        ) and self.missing_followers() == []

    def missing_followers(self) -> list[str]:
        """Configured followers that have not reported the log's end as durable."""
        if not self.segments.offsets:
            return []
        return self.hub.unfinished(self.config.followers)

    def close(self) -> None:
        """Final state, then let go. Blocking. `abort` goes only if nothing is left to recover."""
        if self.gate.open:
            self.gate.open = False
            clean = self._all_flushed() and self.commit.failure is None
            missing = self.missing_followers()
            try:
                self.housekeeping.close(flushed=clean)
                self.segments.close()
                self.scrubber.close()
                if clean and not missing:
                    opening.remove_abort(self._files, self.clock)
                else:
                    why = {"missing_followers": missing, "flushed": clean}
                    log.warning("abort is kept", extra=why)
            except OSError as error:
                # Nothing is lost by it: the next start recovers.
                log.error("abort is kept", extra={"error": str(error)})
            self.reads.close()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the lock without a word to the disk."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # --- inside ---

    def _require_open(self) -> None:
        if not self.gate.open:
            raise UnavailableError("the log is not open")

    def _obstacle(self, require_replicas: bool = False) -> StrataError | None:
        gate = self.gate
        if gate.open:
            gate.pending_bytes = self.appender.pending_bytes
        obstacle = gate.obstacle()
        if obstacle is not None or not require_replicas:
            return obstacle
        if self.role is not Role.SYNC_MASTER:
            return NotWritableError(
                f"the producer requires slaves (require_replicas), and this {self.role.value} "
                "waits for none: let it be a SYNC_MASTER (commitlog.role), or do not require them",
                "replicas",
            )
        if self.replicas.replicated(self.offsets.appended) is None:
            return BusyError(
                "the producer requires slaves (require_replicas), and fewer than "
                f"{self.replicas.required} are connected and near enough: nothing was "
                "stored"
            )
        return None

    def _enqueue(self, item: PutItem | BatchItem) -> None:
        self.appender.enqueue(item)
        self.wake_driver()

    def wake_driver(self) -> None:
        if self.wake is not None:
            self.wake()

    def _appended(self, entry: Appended) -> None:
        self.hub.appended(entry)

    def _commit_put(self, end: int, finish: Finish) -> None:
        """Answer one pass when it is as safe as the settings promise."""

        def flushed(durable: bool | None) -> None:
            if durable is None:
                finish(
                    PutStatus.UNKNOWN_ERROR,
                    UnavailableError(f"perhaps stored: {self.gate.stopped_reason}"),
                )
            elif not durable:
                finish(PutStatus.FLUSH_DISK_TIMEOUT, None)
            else:
                self._await_replicas(end, finish)

        if self.sync_flush:
            self.commit.wait(end, flushed)
        else:
            flushed(None if self.commit.failure is not None else True)

    def _await_replicas(self, end: int, finish: Finish) -> None:
        if self.tail_unconfirmed:
            # It was demoted, or removed from its cluster, since it took the message.
            finish(PutStatus.FLUSH_SLAVE_TIMEOUT, None)
        elif self.role is Role.SYNC_MASTER:
            self.housekeeping.await_replicas(end, finish)
        else:
            finish(PutStatus.PUT_OK, None)

    def _allocated(self) -> None:
        error = self.segments.allocation_error
        if error is None:
            self._no_room = None
        else:
            log.error("segment allocation failed", extra={"error": str(error)})
            if self.appender.blocked:
                self._no_room = no_segment(error)
                self.appender.refuse_all(PutStatus.CREATE_MAPEDFILE_FAILED, self._no_room)
        self.wake_driver()

    def _flushed(self, end: int) -> None:
        self.offsets.flushed = end
        self.segments.flushed(end)
        self.advance()

    def _write_failed(self, error: OSError) -> None:
        self.gate.stopped_reason = failed("write", error)
        self.commit.fail(error)

    def _flush_failed(self, error: OSError) -> None:
        self.gate.stopped_reason = self.gate.stopped_reason or failed("flush", error)
        log.critical("writing stopped", extra={"reason": self.gate.stopped_reason})
        self.appender.refuse_all(
            PutStatus.SERVICE_NOT_AVAILABLE,
            NotWritableError(self.gate.stopped_reason, "flush_failed"),
        )

    def advance(self) -> None:
        """Move *replicable* and *confirmed* to what the four offsets allow, and tell everyone."""
        offsets = self.offsets
        base = offsets.flushed if self.sync_flush else offsets.appended
        offsets.replicable = base
        if self.tail_unconfirmed:
            base = offsets.confirmed
        elif self.role is Role.SYNC_MASTER:
            replicated = self.replicas.replicated(offsets.appended)
            if replicated is not None:
                # Below the generation's start a later promotion may prefer another history.
                reached = replicated >= self.hub.generations[-1].start
                base = min(base, replicated) if reached else offsets.confirmed
            elif self.config.hold_without_slave:
                base = offsets.confirmed
        elif self.role is Role.SLAVE and self.master_confirmed.value is not None:
            base = min(base, self.master_confirmed.value)
        offsets.confirmed = max(offsets.confirmed, self.hub.last_end(base))
        if self.gate.closing:
            self._announce_end()
        self.hub.moved()

    def report_replication(self, generation: int, replicas: list[Replica]) -> int:
        """Take what slaves acknowledged; the new *confirmed*. FencedError is the caller's."""
        self._require_open()
        if generation != self.generation:
            raise NotWritableError(f"the log is in generation {self.generation}", "generation")
        self.replicas.report(replicas)
        self.advance()
        self.housekeeping.replicas_moved()
        return self.offsets.confirmed

    def delete_below(self, offset: int, max_segments: int, urgent: bool) -> tuple[int, list[str]]:
        """Take whole segments below `offset` out of the log, oldest first, never the last."""
        self._require_open()
        removed = self.housekeeping.delete_below(offset, max_segments, urgent)
        self.reads.release_below(self.offsets.minimum)
        return removed

    def _all_flushed(self) -> bool:
        return self.commit.flushed == self.offsets.appended

    def _announce_end(self) -> None:
        """Once everything is durable, and confirmed as far as it will be before the log opens
        again: a slave's master, or slaves that are not connected, are not waited for."""
        offsets = self.offsets
        confirms = (
            self.role is Role.SYNC_MASTER
            and not self.tail_unconfirmed
            and self.replicas.replicated(offsets.appended) is not None
        )
        if self._all_flushed() and (offsets.confirmed == offsets.appended or not confirms):
            self.hub.closing = True
            self.hub.moved()
