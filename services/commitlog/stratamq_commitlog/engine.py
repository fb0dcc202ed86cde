"""The commit log of one broker: opens its parts, drives them, closes them.

The engine starts no thread and uses no event loop. Its driver calls `run_pass` after
`LogListener.wake`, and
`tick` every 50 ms or so; blocking work goes to workers, and comes back between calls.

    a message    puts ──► appender ──► segments ──► acknowledgement ──► the producer
    followers    appender ──► follow_hub ◄── high_water_mark
    the state    role_changes, cutting ──► states (`log_state`), durable before it is swapped
    by the clock upkeep: snapshots, checkpoints, deletion, disk_level; the scrubber

Invariants: minimum ≤ flushed ≤ appended; confirmed never goes back within a generation; bytes below
*flushed* are durable; nothing is acknowledged by a place that did not see *flushed* (or, under
ASYNC_FLUSH, *appended*).
"""

import errno
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from stratamq.errors import (
    NotWritableError,
    StoreRefusedError,
    StrataError,
    UnavailableError,
)
from stratamq.files.port import Clock, Files, Lock, Random
from stratamq.formats.log_state import LogState, ReplicaState, Role
from stratamq.formats.message_status import SendStatus
from stratamq.formats.numbers import NextOffset
from stratamq.store.lost_log import require_log
from stratamq_commitlog import starting
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.log_parts import (
    ThisProcess,
    Workers,
    Writing,
    assemble,
    find_producers,
    make_base_parts,
)
from stratamq_commitlog.log_state import RoleAndHistory
from stratamq_commitlog.messages import LogListener, PutDone, PutMessage
from stratamq_commitlog.recovery import cut_file, opening, recovery
from stratamq_commitlog.recovery.cut_file import CutDone, CutOrder
from stratamq_commitlog.recovery.walk_ahead import Walkers
from stratamq_commitlog.replica.ability import Ability
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.upkeep.disk_level import whole_seconds

log = logging.getLogger(__name__)

_DEVICE = ". Restore the file from a replica or a backup: what is behind these bytes is not known"

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
        process: ThisProcess = ThisProcess(),  # noqa: B008 # it is frozen
        listener: LogListener = LogListener(),  # noqa: B008 # it is frozen
    ) -> None:
        self.incarnation = process.incarnation
        """Another one after each opening: the order of the queue table may be another one."""
        self.report: list[str] = []
        """What recovery found, in sentences."""
        self.config = config
        self._base = base = make_base_parts(
            files,
            config,
            clock=clock,
            random=random,
            workers=workers,
            process=process,
            listener=listener,
            backlog_bytes=lambda: self.appender.pending_bytes,
            members_changed=lambda: self.role_changes.members_changed(),
        )
        self.sync_flush = base.sync_flush
        self.store_host = base.store_host
        self.store_clock = base.store_clock
        self.states = base.states
        self.role_file = base.role_file
        self.membership = base.membership
        self.master_confirmed = base.master_confirmed
        self.replicas = base.replicas
        self.topics = base.topics
        self.gate = base.gate
        self.puts = base.puts
        self._walkers = walkers
        self._pid = process.pid
        self._lock: Lock | None = None

    # --- start ---

    def open(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Lock, recover, begin a generation. Blocking. Raises StoreRefusedError.

        The lock is held until the open log closes or, when this raises, until here: `close` in
        another thread does not let go of it.
        """
        try:
            require_log(self._base.files)
            lock, foreign = opening.take_lock(
                self._base.files, self._pid, partial(starting.adopt, self._base)
            )
            try:
                self._open_store(foreign, progress)
            except BaseException:
                lock.close()
                raise
        except OSError as error:
            raise StoreRefusedError(
                f"the store cannot be opened: {error.filename or 'a file'}: "
                f"{error.strerror or error}{_DEVICE if error.errno == errno.EIO else ''}"
            ) from error
        self._lock = lock
        self.gate.open, self.gate.closing = True, False
        self.segments.keep_ahead(self.offsets.appended)
        for line in self.report:
            log.info("recovery", extra={"detail": line})

    def _open_store(self, foreign: bool, progress: Callable[[int, int], None] | None) -> None:
        """Nothing is given to a worker: when this fails, no write follows."""
        base = self._base
        opened, report = starting.start(base, foreign, progress, self._walkers)
        self.report = report
        writing = self._assemble(opened.recovered)
        if self.role is not Role.SLAVE:
            producers = find_producers(base, writing)
            self.window.load(producers)
        self.high_water_mark.begin(
            opened.checkpoint.confirm_phy_offset, is_member=self.membership.members is not None
        )
        assigned = self.states.now.assigned
        self.offsets.sealed_from = opening.seal(base.own_state, self.config, assigned.role, opened)
        self.upkeep.start(opened.checkpoint, opened.recovered)
        base.own_state.set_found_clean(False)
        cut_file.forget(self._base.files)
        base.reserve.keep()

    def _assemble(self, recovered: recovery.RecoveredLog) -> Writing:
        parts = assemble(self._base, recovered)
        writing = parts.writing
        self.offsets = writing.offsets
        self.segments = writing.segments
        self.commit = writing.commit
        self.window = writing.window
        self.appender = writing.appender
        self.hub = writing.hub
        self.replica_waiters = writing.waiters
        self.high_water_mark = writing.high_water_mark
        self.write_path = writing.path
        self.times = writing.times
        self.reads = parts.reads
        self.role_changes = parts.role_changes
        self.cutting = parts.cutting
        self.slave_data = parts.slave_data
        self.deletion = parts.deletion
        self.upkeep = parts.upkeep
        self.scrubber = parts.scrubber
        self.closing = parts.closing
        self.ability = Ability(
            writing.offsets,
            self.states,
            self.gate,
            self.replicas,
            lambda: writing.appender.waiting,
            lambda: writing.path.no_room,
        )
        self.topic_changes = parts.topic_changes
        self._procedures = parts.procedures
        self.incarnation += 1
        self.discover_topics()
        if self.topics.limit_minimums(self.appender.queues.table):
            self.topics.save()
        self.report += self.scrubber.load()
        self.store_clock.load(recovered.store_timestamp_ms)
        return writing

    # --- status ---

    @property
    def state(self) -> RoleAndHistory:
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
        error = self.gate.obstacle() or self.write_path.no_room
        return error is None, "" if error is None else str(error)

    def status(self) -> LogState:
        self._require_open()
        offsets, state, gate, lease = self.offsets, self.states.now, self.gate, self.gate.lease
        assigned, configured = state.assigned, self.role_file.configured
        is_master = assigned.role is not Role.SLAVE
        writable, not_writable_reason = self.writable
        unable_ms, unable_reason = self.ability.look(self._base.clock.monotonic_ns())
        return LogState(
            minimum_offset=offsets.minimum,
            appended_offset=offsets.appended,
            flushed_offset=offsets.flushed,
            confirmed_offset=offsets.confirmed,
            role=assigned.role,
            configured_role=configured,
            role_reason=assigned.difference(configured),
            generations=state.generations,
            term=state.highest_term,
            promised_to=assigned.candidate,
            writable=writable,
            not_writable_reason=not_writable_reason,
            held_reason=state.held_reason if is_master else "",
            clock_doubt=self.store_clock.doubt_now(),
            store_time_ms=self.store_clock.wall_ms(),
            unable_ms=unable_ms,
            unable_reason=unable_reason,
            segment_bytes=self.segments.segment_bytes,
            segment_count=len(self.segments.offsets),
            disk_used_ratio=gate.disk_used_ratio,
            disk_full_in_s=whole_seconds(gate.disk_full_in_s),
            sync_flush=self.sync_flush,
            recovery_report=tuple(self.report),
            broker_name=self.config.broker_name,
            broker_id=0 if is_master else max(1, self.config.broker_id),
            identity=self.membership.identity.number,
            members=self.membership.members,
            member=self.membership.member,
            rejoining=self.membership.rejoining,
            has_peers=assigned.peers,
            taking_back=bool(state.recovering_tail),
            required_replicas=self.config.required_replicas,
            master_replication_address=assigned.master,
            master_address="" if is_master else gate.master_address,
            master_confirmed_offset=self.master_confirmed.value,
            window_offset=self.window.complete_from,
            lease_required=lease.required,
            lease_remaining_ms=lease.remaining_ms,
            lead_ended_reason=lease.ended if is_master else "",
            scrub=self.scrubber.state,
            followers=self.hub.follower_states(),
            replicas=self.replicas.states(offsets.appended),
        )

    def queue_page(self, position: int, wanted: int) -> tuple[int, list[NextOffset], int]:
        """The log's end, next offsets of a page of queues there, where the next page begins."""
        self._require_open()
        found, following = self.appender.queues.page(position, wanted, self.config.page_entries)
        return self.offsets.appended, found, following

    def frame_at(self, physical_offset: int) -> bytes:
        """One whole frame, blocking; see `LogReads.frame_at`."""
        self._require_open()
        return self.reads.frame_at(physical_offset)

    def read_range(
        self, start: int, end: int, max_bytes: int, **how: bool
    ) -> Iterator[tuple[int, bytes]]:
        """Pieces of the log, each blocking; see `LogReads.range`."""
        self._require_open()
        return self.reads.range(start, end, max_bytes, **how)

    def read_heads(
        self, start: int, end: int, max_bytes: int, *, unconfirmed: bool
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """Pieces of the log without bodies and properties; see `LogReads.heads`."""
        self._require_open()
        return self.reads.heads(start, end, max_bytes, unconfirmed=unconfirmed)

    # --- appends ---

    def put(self, messages: Iterable[PutMessage], all_or_nothing: bool, done: PutDone) -> None:
        """Store messages given as fields; `done` gets one result for each, in order."""
        deque(self.puts.messages(messages, all_or_nothing, done), 0)

    def put_raw(self, frames: Iterable[bytes], done: PutDone) -> None:
        """Store complete frames whatever their transaction bits; offsets and times are ours."""
        deque(self.puts.raw(frames, done), 0)

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
        """See `WritePath.run_pass`; nothing while the log is not open."""
        if self.gate.open:
            self.write_path.run_pass()

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

    def grant_lease(self, boot: str, until_ns: int) -> None:
        """See `Lease.grant`."""
        self.gate.lease.grant(boot, until_ns)
        self.high_water_mark.advance()

    def end_lead(self, boot: str, until_ns: int, reason: str) -> None:
        """Answer no PUT_OK from now on, for another member takes over; see `Lease.end_lead`.
        Nothing is written, and nothing waited for: the disk may be what fails."""
        self.gate.lease.end_lead(boot, until_ns, reason)
        refusal = NotWritableError(reason, "held")
        self.appender.refuse_all(SendStatus.SERVICE_NOT_AVAILABLE, refusal)
        self.replica_waiters.abandon()

    def cut(self, cut: CutOrder, done: Callable[[CutDone], None]) -> None:
        """Cut a slave's log to its master's history; see `Cutting.cut`."""
        self._require_open()

        def ended(reopen: bool | None, error: StrataError | None) -> None:
            done(CutDone(error, bool(reopen)))

        self._procedures.run(self.cutting.cut(cut), ended)

    def report_replication(self, generation: int, replicas: Iterable[ReplicaState]) -> int:
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

    def discover_topics(self, most: int | None = None) -> None:
        """Topics of queues that are new, of `most` queues at a time: all that a slave gets."""
        self.topics.discover(self.appender.queues.undiscovered(most))

    def tick(self) -> None:
        """Everything that depends on time: flushes, time-outs, the disk's level, saved state."""
        if not self.gate.open:
            return
        now_ns = self._base.clock.monotonic_ns()
        self.write_path.tick(now_ns)
        self.replica_waiters.expire(now_ns)
        self.upkeep.tick(now_ns)
        if self.role is Role.SLAVE:
            self.discover_topics(QUEUES_PER_STEP)
        self.ability.look(now_ns)
        self.store_clock.wall_ms()
        self.scrubber.tick()

    # --- the end ---

    def begin_close(self) -> None:
        """Refuse appends, flush, and send the followers the end of the log."""
        if self.gate.open:
            self.closing.begin()

    def close_ready(self) -> bool:
        """Nothing is left to wait for before `close`."""
        return not self.gate.open or self.closing.ready

    def close(self) -> None:
        """Final state, then let go. Blocking; see `Closing.finish`."""
        if self.gate.open:
            self.gate.open = False
            self.closing.finish()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the lock without a write to the disk."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _require_open(self) -> None:
        if not self.gate.open:
            raise UnavailableError("the log is not open")
