"""The parts of a log, made and connected in the order in which they need each other.

`BaseParts` live as long as the process; `LogParts` from one opening to its close.
"""

from collections.abc import Callable
from dataclasses import dataclass

from stratamq.errors import StrataError
from stratamq.files.port import Clock, Files, Random, Worker
from stratamq.formats.delay import parse_delay_levels
from stratamq.formats.log_state import Role
from stratamq_commitlog.closing import LogCloser
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.log_reads import LogReads
from stratamq_commitlog.log_state import LogOffsets, RoleAndHistory, StateCell
from stratamq_commitlog.messages import LogListener
from stratamq_commitlog.recovery.own_state import OwnState
from stratamq_commitlog.recovery.recovery import RecoveredLog
from stratamq_commitlog.recovery.reserve import Reserve
from stratamq_commitlog.replica.acknowledgement import Acknowledgement, Replicas, ReplicaWaiters
from stratamq_commitlog.replica.cutting import Cutting
from stratamq_commitlog.replica.follow_hub import FollowHub
from stratamq_commitlog.replica.high_water_mark import HighWaterMark
from stratamq_commitlog.replica.master_confirmed import MasterConfirmed
from stratamq_commitlog.replica.membership import Membership
from stratamq_commitlog.replica.role_change import RoleChanges
from stratamq_commitlog.replica.slave_data import SlaveData
from stratamq_commitlog.roles import RoleFile, RoleState
from stratamq_commitlog.upkeep.checkpoints import Checkpoints
from stratamq_commitlog.upkeep.deletion import SegmentDeletion
from stratamq_commitlog.upkeep.disk_level import DiskLevel
from stratamq_commitlog.upkeep.jobs import Jobs
from stratamq_commitlog.upkeep.purging import TopicChanges
from stratamq_commitlog.upkeep.scrubber import LogScrubber
from stratamq_commitlog.upkeep.snapshots import Snapshots
from stratamq_commitlog.upkeep.upkeep import Upkeep
from stratamq_commitlog.write.append_times import AppendStages, AppendTimes
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.batch_check import FrameRules
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.pending_items import AppendListener, BatchItem, PutItem
from stratamq_commitlog.write.prepare import Preparer, encode_store_host
from stratamq_commitlog.write.procedures import Procedures
from stratamq_commitlog.write.producer_scan import scan_producers
from stratamq_commitlog.write.producer_window import ProducerWindow, WindowContents
from stratamq_commitlog.write.puts import Puts
from stratamq_commitlog.write.queue_offsets import QueueTurns
from stratamq_commitlog.write.segment_set import SegmentSet
from stratamq_commitlog.write.store_clock import StoreClock
from stratamq_commitlog.write.topic_table import TopicTable
from stratamq_commitlog.write.write_gate import Lease, WriteGate
from stratamq_commitlog.write.write_path import WritePath


@dataclass(frozen=True, slots=True)
class Workers:
    """Where blocking work runs: `flush` flushes alone; `allocate` makes segments and saves state;
    `scrub` reads the log."""

    flush: Worker
    allocate: Worker
    scrub: Worker | None = None
    """None: `allocate`."""


@dataclass(frozen=True, slots=True)
class ThisProcess:
    """What the log is told of its process. `boot`: the machine's, "" if it is not known.
    `incarnation`: another one in each process, and not 0. `stages`: where appends are traced."""

    pid: int = 0
    boot: str = ""
    incarnation: int = 1
    stages: AppendStages | None = None


@dataclass(frozen=True, slots=True)
class BaseParts:
    """What is there before a log is open, and stays when it is opened again."""

    files: Files
    config: CommitLogConfig
    clock: Clock
    store_clock: StoreClock
    random: Random
    workers: Workers
    reserve: Reserve
    own_state: OwnState
    states: StateCell
    role_file: RoleFile
    membership: Membership
    master_confirmed: MasterConfirmed
    replicas: Replicas
    topics: TopicTable
    gate: WriteGate
    puts: Puts
    store_host: bytes
    stages: AppendStages | None
    listener: LogListener

    @property
    def sync_flush(self) -> bool:
        return self.config.flush_disk_type == "SYNC_FLUSH"


def make_base_parts(
    files: Files,
    config: CommitLogConfig,
    *,
    clock: Clock,
    random: Random,
    workers: Workers,
    process: ThisProcess,
    listener: LogListener,
    backlog_bytes: Callable[[], int],
    members_changed: Callable[[], None],
) -> BaseParts:
    """Touches no file."""
    states = StateCell(RoleAndHistory(RoleState(Role[config.role])))
    store_clock = StoreClock(files, clock, config.clock_jump_limit_ms, process.boot)
    gate = WriteGate(
        config, states, Lease(clock, process.boot, required=config.lease), backlog_bytes
    )
    topics = TopicTable(
        files,
        clock,
        auto_create=config.auto_create_topics,
        default_queues=config.default_topic_queues,
        version2=config.write_v2,
        incarnation=process.incarnation,
        page_entries=config.page_entries,
    )
    return BaseParts(
        files=files,
        config=config,
        clock=clock,
        store_clock=store_clock,
        random=random,
        workers=workers,
        reserve=Reserve(files, config.reserve_bytes),
        own_state=OwnState(files),
        states=states,
        role_file=RoleFile(files, Role[config.role]),
        membership=Membership(files, workers.allocate, config.required_replicas, members_changed),
        master_confirmed=MasterConfirmed(files),
        replicas=Replicas(config.required_replicas, config.slave_max_gap_bytes),
        topics=topics,
        gate=gate,
        puts=Puts(config, gate, topics, store_clock),
        store_host=encode_store_host(config.store_host),
        stages=process.stages,
        listener=listener,
    )


@dataclass(frozen=True, slots=True)
class Writing:
    """The way of an append to its answer."""

    offsets: LogOffsets
    hub: FollowHub
    segments: SegmentSet
    commit: GroupCommit
    waiters: ReplicaWaiters
    window: ProducerWindow
    appender: Appender
    high_water_mark: HighWaterMark
    times: AppendTimes
    path: WritePath


@dataclass(frozen=True, slots=True)
class LogParts:
    """The parts of one open log."""

    writing: Writing
    reads: LogReads
    procedures: Procedures
    topic_changes: TopicChanges
    role_changes: RoleChanges
    cutting: Cutting
    slave_data: SlaveData
    snapshots: Snapshots
    deletion: SegmentDeletion
    upkeep: Upkeep
    scrubber: LogScrubber
    closing: LogCloser


def assemble(base: BaseParts, recovered: RecoveredLog) -> LogParts:
    """Parts of a log that was recovered and ends at `recovered.end`. Opens its last segment, and
    gives nothing to a worker."""
    files, config, clock, workers = base.files, base.config, base.clock, base.workers
    writing = _make_writing(base, recovered)
    _connect_puts(base, writing, recovered)
    reads = LogReads(files, recovered.segment_bytes, writing.offsets)
    jobs = Jobs(workers.allocate, base.reserve)
    snapshots = Snapshots(
        base.own_state,
        writing.appender,
        writing.offsets,
        base.states,
        writing.commit,
        reads,
        jobs,
        interval_ms=config.snapshot_interval_ms,
    )
    deletion = SegmentDeletion(
        writing.segments,
        writing.offsets,
        writing.hub,
        snapshots,
        base.gate,
        jobs,
        clock,
        followers=config.followers,
        release_timeout_ms=config.release_timeout_ms,
    )
    upkeep = _make_upkeep(base, writing, jobs, snapshots, deletion)
    scrub_worker = workers.scrub or workers.allocate
    scrubber = LogScrubber(files, scrub_worker, writing.segments, writing.offsets, config, clock)
    procedures = Procedures(writing.commit, workers.allocate, base.gate)
    return LogParts(
        writing=writing,
        reads=reads,
        procedures=procedures,
        topic_changes=TopicChanges(
            base.topics, base.states, base.gate, writing.appender, procedures
        ),
        role_changes=_make_role_changes(base, writing),
        cutting=_make_cutting(base, writing),
        slave_data=_make_slave_data(base, writing, snapshots),
        snapshots=snapshots,
        deletion=deletion,
        upkeep=upkeep,
        scrubber=scrubber,
        closing=_make_closing(base, writing, upkeep, scrubber, reads),
    )


def _make_writing(base: BaseParts, recovered: RecoveredLog) -> Writing:
    config, clock, states, gate = base.config, base.clock, base.states, base.gate
    end, sync_flush = recovered.end, base.sync_flush
    path: WritePath  # made last, from the parts that it hears
    offsets = LogOffsets(recovered.minimum, end, end, end, end)
    hub = FollowHub(recovered.segment_bytes, offsets, states)
    segments = SegmentSet(
        base.files, base.workers.allocate, recovered.segment_bytes, recovered.segments, end,
        config.disk_refuse_ratio, on_allocated=lambda: path.allocated(),
    )  # fmt: skip
    commit = GroupCommit(
        base.workers.flush,
        segments.flush_task,
        clock,
        flushed=end,
        timeout_ms=config.sync_flush_timeout_ms,
        on_flushed=lambda end: path.flushed(end),
        on_failed=lambda error: path.flush_failed(error),
        listener=base.listener,
    )
    waiters = ReplicaWaiters(base.replicas, offsets, clock, timeout_ms=config.slave_timeout_ms)
    acknowledgement = Acknowledgement(commit, waiters, states, gate, sync_flush=sync_flush)
    window = ProducerWindow(states)
    appender = Appender(
        segments,
        recovered,
        window,
        clock=base.store_clock,
        rules=_frame_rules(base),
        pass_bytes=config.pass_bytes,
        pass_messages=config.pass_messages,
        turns=QueueTurns(base.topics),
        listener=AppendListener(
            acknowledgement.when_safe, hub.appended, lambda error: path.write_failed(error)
        ),
    )
    high_water_mark = HighWaterMark(
        offsets, states, gate, hub, base.replicas, base.master_confirmed,
        sync_flush=sync_flush, hold_without_slave=config.hold_without_slave,
    )  # fmt: skip
    interval_ms = None if sync_flush else config.flush_interval_ms
    took, when_safe = base.listener.append_took, acknowledgement.when_safe
    times = AppendTimes(clock, commit, when_safe, states, took, sync_flush=sync_flush)
    path = WritePath(
        appender, segments, commit, offsets, gate, high_water_mark.advance, times, clock,
        base.listener.wake, flush_interval_ms=interval_ms, stages=base.stages,
    )  # fmt: skip
    return Writing(
        offsets, hub, segments, commit, waiters, window, appender, high_water_mark, times, path
    )


def _frame_rules(base: BaseParts) -> FrameRules:
    return FrameRules(
        store_host=base.store_host,
        max_message_bytes=base.config.max_message_bytes,
        version2=base.config.write_v2,
        property_checksum=base.config.property_checksum,
    )


def _connect_puts(base: BaseParts, writing: Writing, recovered: RecoveredLog) -> None:
    config, appender = base.config, writing.appender
    preparer = Preparer(
        base.topics,
        store_host=base.store_host,
        delay_levels_ms=parse_delay_levels(config.message_delay_level),
        timer_max_delay_ms=config.timer_max_delay_ms,
        max_message_bytes=config.max_message_bytes,
        segment_bytes=recovered.segment_bytes,
        property_checksum=config.property_checksum,
        write_v2=config.write_v2,
        turns=appender.turns,
    )

    def enqueue(item: PutItem | BatchItem) -> None:
        appender.enqueue(item)
        base.listener.wake()

    def obstacle() -> StrataError | None:
        return writing.waiters.obstacle(base.states.now.role)

    base.puts.begin(preparer, enqueue, recovered.segment_bytes, obstacle)


def _make_upkeep(
    base: BaseParts, writing: Writing, jobs: Jobs, snapshots: Snapshots, deletion: SegmentDeletion
) -> Upkeep:
    files, config = base.files, base.config
    checkpoints = Checkpoints(
        files,
        base.clock,
        writing.offsets,
        writing.appender,
        writing.hub,
        jobs,
        followers=config.followers,
    )
    disk_level = DiskLevel(
        files,
        base.reserve,
        base.gate,
        jobs,
        base.clock,
        refuse_ratio=config.disk_refuse_ratio,
        resume_ratio=config.disk_resume_ratio,
    )
    return Upkeep(
        jobs,
        writing.offsets,
        writing.segments,
        snapshots,
        checkpoints,
        deletion,
        disk_level,
        base.topics,
        base.master_confirmed,
        base.store_clock,
    )


def _make_role_changes(base: BaseParts, writing: Writing) -> RoleChanges:
    return RoleChanges(
        states=base.states,
        role_file=base.role_file,
        own_state=base.own_state,
        membership=base.membership,
        offsets=writing.offsets,
        gate=base.gate,
        appender=writing.appender,
        hub=writing.hub,
        replicas=base.replicas,
        waiters=writing.waiters,
        master_confirmed=base.master_confirmed,
        high_water_mark=writing.high_water_mark,
        random=base.random,
        segment_bytes=writing.segments.segment_bytes,
        property_checksum=base.config.property_checksum,
        topics=base.topics,
        window=writing.window,
        scan_producers=lambda: find_producers(base, writing),
        reserve=base.reserve,
    )


def find_producers(base: BaseParts, writing: Writing) -> WindowContents:
    """Blocking: what the window of producers begins with when the log begins to take messages."""
    return scan_producers(
        base.files,
        writing.segments.segment_bytes,
        writing.offsets.minimum,
        writing.appender.appended,
        base.config.producer_window_bytes,
    )


def _make_cutting(base: BaseParts, writing: Writing) -> Cutting:
    return Cutting(
        files=base.files,
        states=base.states,
        own_state=base.own_state,
        membership=base.membership,
        offsets=writing.offsets,
        segments=writing.segments,
        gate=base.gate,
        appender=writing.appender,
        commit=writing.commit,
        hub=writing.hub,
        master_confirmed=base.master_confirmed,
        high_water_mark=writing.high_water_mark,
        sync_flush=base.sync_flush,
    )


def _make_slave_data(base: BaseParts, writing: Writing, snapshots: Snapshots) -> SlaveData:
    return SlaveData(
        states=base.states,
        offsets=writing.offsets,
        segments=writing.segments,
        gate=base.gate,
        appender=writing.appender,
        commit=writing.commit,
        hub=writing.hub,
        master_confirmed=base.master_confirmed,
        high_water_mark=writing.high_water_mark,
        wake=base.listener.wake,
        queues_learned=snapshots.save_again,
        topics=base.topics,
    )


def _make_closing(
    base: BaseParts, writing: Writing, upkeep: Upkeep, scrubber: LogScrubber, reads: LogReads
) -> LogCloser:
    return LogCloser(
        base.files,
        base.clock,
        base.gate,
        writing.offsets,
        writing.segments,
        writing.commit,
        writing.appender,
        writing.hub,
        writing.high_water_mark,
        upkeep,
        scrubber,
        reads,
        followers=base.config.followers,
    )
