"""The commit log of one broker: opens its parts, drives them, closes them.

The engine starts no thread and knows no event loop. Its driver calls `run_pass` after `wake`, and
`tick` every 50 ms or so; blocking work goes to workers, and comes back between calls.

    a message    puts ──► appender ──► segments ──► acknowledgement ──► the producer
    followers    appender ──► follow_hub ◄── high_water_mark
    the state    role_changes, cutting ──► states (`log_state`), durable before it is swapped
    by the clock upkeep: snapshots, checkpoints, deletion, disk_level; the scrubber

Invariants: minimum ≤ flushed ≤ appended; confirmed never goes back within a generation; bytes below
*flushed* are durable; nothing is acknowledged by a place that did not see *flushed* (or, under
ASYNC_FLUSH, *appended*).
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from stratamq.errors import (
    BusyError,
    NotWritableError,
    StoreRefusedError,
    StrataError,
    UnavailableError,
)
from stratamq.files.origin import store_origin
from stratamq.files.port import Clock, Files, Lock, Random
from stratamq_commitlog import cut_file, opening, recovery
from stratamq_commitlog.appender import failed, no_segment
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.cut_file import Cut, CutDone
from stratamq_commitlog.log_parts import Workers, assemble
from stratamq_commitlog.log_state import LogState, StateCell
from stratamq_commitlog.master_confirmed import MasterConfirmed
from stratamq_commitlog.membership import Membership
from stratamq_commitlog.messages import (
    BatchDone,
    FrameBatch,
    LogStatus,
    PutDone,
    PutMessage,
    PutStatus,
    Role,
)
from stratamq_commitlog.own_state import OwnState
from stratamq_commitlog.prepare import encode_store_host
from stratamq_commitlog.puts import Puts
from stratamq_commitlog.replicas import Replica, Replicas
from stratamq_commitlog.reserve import Reserve
from stratamq_commitlog.role_change import RoleChange, start_role, state_at_start
from stratamq_commitlog.roles import RoleFile, RoleState
from stratamq_commitlog.store_clock import StoreClock
from stratamq_commitlog.topic_table import TopicTable
from stratamq_commitlog.walk_ahead import Walkers
from stratamq_commitlog.write_gate import WriteGate

log = logging.getLogger(__name__)

QUEUES_PER_STEP = 1_000

Done = Callable[[StrataError | None], None]


class CommitLog:
    """One log. `open` first; everything else raises UnavailableError before and after."""

    def __init__(
        self,
        files: Files,
        config: CommitLogConfig,
        *,
        clock: Clock,
        random: Random,
        workers: Workers,
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
        self.report: list[str] = []
        """What recovery found, in sentences."""
        self.config = config
        self.sync_flush = config.flush_disk_type == "SYNC_FLUSH"
        self.store_host = encode_store_host(config.store_host)
        self.store_clock = StoreClock(files, clock, config.clock_jump_limit_ms, boot)
        self.states = StateCell(LogState(RoleState(Role(config.role))))
        self.role_file = RoleFile(files, Role(config.role))
        self.membership = Membership(files, workers.allocate, config.required_replicas)
        self.master_confirmed = MasterConfirmed(files)
        self.replicas = Replicas(config.required_replicas, config.slave_max_gap_bytes)
        self.topics = TopicTable(
            files,
            clock,
            auto_create=config.auto_create_topics,
            default_queues=config.default_topic_queues,
            version2=config.write_v2,
            incarnation=incarnation,
            page_entries=config.page_entries,
        )
        self.gate = WriteGate(config, self.states)
        self.puts = Puts(config, self.gate, self.topics, self.store_clock)
        self._files = files
        self._clock = clock
        self._random = random
        self._workers = workers
        self._walkers = walkers
        self._pid = pid
        self._lock: Lock | None = None
        self._own_state = OwnState(files)
        self._reserve = Reserve(files, config.reserve_bytes)
        self._next_flush_ns = 0
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

    def _adopt(self) -> None:
        """The store is new, or another program wrote to it: our own state of it does not hold."""
        self._own_state.discard()
        if recovery.is_empty(self._files):
            store_origin(self._files, self._clock)
        self.topics.adopt()

    def _open_store(self, foreign: bool, progress: Callable[[int, int], None] | None) -> None:
        """Nothing is given to a worker: when this fails, nothing is written any more."""
        config, own_state = self.config, self._own_state
        self._reserve.release_if_short()
        opened = opening.open_store(
            self._files, config, own_state, foreign, self._clock, progress, self._walkers
        )
        unclean = opened.unclean and opened.history_known
        started, role_report = start_role(
            self.role_file,
            self.membership,
            self._random,
            wait_for_peers=config.wait_for_peers,
            tail_at_risk=unclean and not self.sync_flush and config.take_back,
        )
        self.report = [*opened.report, *role_report, *self.topics.load(foreign=opened.foreign)]
        generations = opening.begin_generation(own_state, opened, self._random, started)
        assigned = self.role_file.keep(started.state, generations[-1].term)
        self.states.now = state_at_start(started, assigned, generations, self.membership)
        self.replicas.required = self.membership.required
        self._assemble(opened.recovered)
        self.high_water_mark.begin(opened.checkpoint.confirm_phy_offset)
        self.offsets.sealed_from = opening.seal(own_state, config, assigned.role, opened)
        self.upkeep.start(opened.checkpoint, opened.recovered)
        own_state.set_found_clean(False)
        cut_file.forget(self._files)
        self._reserve.keep()

    def _assemble(self, recovered: recovery.Recovered) -> None:
        parts = assemble(
            self._files,
            self.config,
            recovered,
            own_state=self._own_state,
            states=self.states,
            role_file=self.role_file,
            membership=self.membership,
            master_confirmed=self.master_confirmed,
            replicas=self.replicas,
            topics=self.topics,
            gate=self.gate,
            puts=self.puts,
            clock=self._clock,
            store_clock=self.store_clock,
            random=self._random,
            workers=self._workers,
            reserve=self._reserve,
            store_host=self.store_host,
            wake=self.wake_driver,
            write_failed=self._write_failed,
        )
        self.offsets = parts.offsets
        self.segments = parts.segments
        self.commit = parts.commit
        self.appender = parts.appender
        self.hub = parts.hub
        self.reads = parts.reads
        self.high_water_mark = parts.high_water_mark
        self.replica_waiters = parts.replica_waiters
        self.role_changes = parts.role_changes
        self.cutting = parts.cutting
        self.slave_data = parts.slave_data
        self.snapshots = parts.snapshots
        self.deletion = parts.deletion
        self.upkeep = parts.upkeep
        self.scrubber = parts.scrubber
        self._procedures = parts.procedures
        self.incarnation += 1
        self.segments.on_allocated = self._allocated
        self.commit.on_flushed = self._flushed
        self.commit.on_failed = self._flush_failed
        self.membership.changed = self.role_changes.members_changed
        self.topics.discover(self.appender.queues.undiscovered())
        self.report += self.scrubber.load()
        self.store_clock.load(recovered.store_timestamp_ms)

    # --- what others may know ---

    @property
    def state(self) -> LogState:
        return self.states.now

    @property
    def role(self) -> Role:
        """The role that the log acts in."""
        return self.states.now.role

    @property
    def generation(self) -> int:
        return self.states.now.generation

    @property
    def segment_bytes(self) -> int:
        return self.segments.segment_bytes

    @property
    def writable(self) -> tuple[bool, str]:
        """Whether producers are served, and if not why."""
        error = self.gate.obstacle() or self._no_room
        return error is None, "" if error is None else str(error)

    def status(self) -> LogStatus:
        self._require_open()
        writable, reason = self.writable
        offsets, state = self.offsets, self.states.now
        return LogStatus(
            minimum=offsets.minimum,
            appended=offsets.appended,
            flushed=offsets.flushed,
            confirmed=offsets.confirmed,
            role=state.role,
            generations=state.generations,
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
        done: Done,
        master_confirmed: int | None = None,
    ) -> None:
        """Store a master's bytes at their own offset; see `SlaveData.append`."""
        self._require_open()
        self.slave_data.append(generation, offset, data, done, master_confirmed)

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
            self.high_water_mark.advance()
        if more:
            self.wake_driver()

    def wake_driver(self) -> None:
        if self.wake is not None:
            self.wake()

    # --- roles, history, deletion ---

    def set_role(self, change: RoleChange, done: Done) -> None:
        """Become a master or a slave, for good; see `RoleChanges.change`."""
        self._require_open()
        self._procedures.run(self.role_changes.change(change), lambda _, error: done(error))

    def hold_writes(self, reason: str, has_peers: bool, done: Done) -> None:
        """Take no messages for the time being, or again; see `RoleChanges.hold`."""
        self._require_open()
        held = self.role_changes.hold(reason, has_peers)
        self._procedures.run(held, lambda _, error: done(error))

    def cut(self, cut: Cut, done: Callable[[CutDone], None]) -> None:
        """Cut a slave's log to its master's history; see `Cutting.cut`."""
        self._require_open()

        def ended(reopen: bool | None, error: StrataError | None) -> None:
            done(CutDone(error, bool(reopen)))

        self._procedures.run(self.cutting.cut(cut), ended)

    def report_replication(self, generation: int, replicas: list[Replica]) -> int:
        """Take what slaves acknowledged; the new *confirmed*."""
        self._require_open()
        if generation != self.generation:
            raise NotWritableError(f"the log is in generation {self.generation}", "generation")
        self.replicas.report(replicas)
        self.high_water_mark.advance()
        self.replica_waiters.replicas_changed()
        return self.offsets.confirmed

    def delete_below(self, offset: int, max_segments: int, urgent: bool) -> tuple[int, list[str]]:
        """Take whole segments below `offset` out of the log; see `Deletion.delete_below`."""
        self._require_open()
        removed = self.deletion.delete_below(offset, max_segments, urgent)
        self.reads.release_below(self.offsets.minimum)
        return removed

    def save_topics(self, done: Done) -> None:
        """Make topic settings durable, then `done(None)`."""
        self.upkeep.save_topics(done)

    def discover_topics(self, most: int | None = None) -> None:
        """Topics of queues that are new, of `most` queues at a time: on a slave nothing else
        creates them, they come with their master's messages."""
        self.topics.discover(self.appender.queues.undiscovered(most))

    # --- time ---

    def tick(self) -> None:
        """Everything that depends on time: flushes, time-outs, the disk's level, saved state."""
        if not self.gate.open:
            return
        self.commit.expire()
        now_ns = self._clock.monotonic_ns()
        if not self.sync_flush and now_ns >= self._next_flush_ns:
            self._next_flush_ns = now_ns + self.config.flush_interval_ms * 1_000_000
            self.commit.request(self.offsets.appended)
        self.replica_waiters.expire(now_ns)
        self.upkeep.tick(now_ns)
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
        self.high_water_mark.announce_end()

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
                self.upkeep.close(flushed=clean)
                self.segments.close()
                self.scrubber.close()
                if clean and not missing:
                    opening.remove_abort(self._files, self._clock)
                else:
                    why = {"missing_followers": missing, "flushed": clean}
                    log.warning("abort is kept", extra=why)
            except OSError as error:
                # Nothing is lost by it: the next start recovers.
                log.error("abort is kept", extra={"error": str(error)})
            self.reads.close()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the lock without a write to the disk."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # --- inside ---

    def _require_open(self) -> None:
        if not self.gate.open:
            raise UnavailableError("the log is not open")

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
        self.high_water_mark.advance()

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

    def _all_flushed(self) -> bool:
        return self.commit.flushed == self.offsets.appended
