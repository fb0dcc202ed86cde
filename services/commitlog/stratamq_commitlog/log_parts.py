"""The parts of an open log, made and connected in the order in which they need each other."""

from collections.abc import Callable
from dataclasses import dataclass

from stratamq.files.port import Clock, Files, Random, Worker
from stratamq.formats.delay import parse_delay_levels
from stratamq_commitlog.acknowledgement import Acknowledgement, ReplicaWaiters
from stratamq_commitlog.appender import Appender, BatchItem, PutItem
from stratamq_commitlog.batch_check import FrameRules
from stratamq_commitlog.checkpoints import Checkpoints
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.cutting import Cutting
from stratamq_commitlog.deletion import Deletion
from stratamq_commitlog.disk_level import DiskLevel
from stratamq_commitlog.follow_hub import FollowHub, LogOffsets
from stratamq_commitlog.group_commit import GroupCommit
from stratamq_commitlog.high_water_mark import HighWaterMark
from stratamq_commitlog.jobs import Jobs
from stratamq_commitlog.log_reads import LogReads
from stratamq_commitlog.log_state import StateCell
from stratamq_commitlog.master_confirmed import MasterConfirmed
from stratamq_commitlog.membership import Membership
from stratamq_commitlog.own_state import OwnState
from stratamq_commitlog.prepare import Preparer
from stratamq_commitlog.procedures import Procedures
from stratamq_commitlog.puts import Puts
from stratamq_commitlog.queue_offsets import QueueOffsets
from stratamq_commitlog.recovery import Recovered
from stratamq_commitlog.replicas import Replicas
from stratamq_commitlog.reserve import Reserve
from stratamq_commitlog.role_change import RoleChanges
from stratamq_commitlog.roles import RoleFile
from stratamq_commitlog.scrubber import Scrubber
from stratamq_commitlog.segment_set import SegmentSet
from stratamq_commitlog.slave_data import SlaveData
from stratamq_commitlog.snapshots import Snapshots
from stratamq_commitlog.store_clock import StoreClock
from stratamq_commitlog.topic_table import TopicTable
from stratamq_commitlog.upkeep import Upkeep
from stratamq_commitlog.write_gate import WriteGate


@dataclass(frozen=True, slots=True)
class Workers:
    """Where blocking work runs: `flush` flushes alone; `allocate` makes segments and saves state;
    `scrub` reads the log."""

    flush: Worker
    allocate: Worker
    scrub: Worker | None = None
    """None: `allocate`."""


@dataclass(frozen=True, slots=True)
class LogParts:
    """Of one open log."""

    offsets: LogOffsets
    hub: FollowHub
    segments: SegmentSet
    commit: GroupCommit
    appender: Appender
    reads: LogReads
    procedures: Procedures
    high_water_mark: HighWaterMark
    replica_waiters: ReplicaWaiters
    role_changes: RoleChanges
    cutting: Cutting
    slave_data: SlaveData
    snapshots: Snapshots
    deletion: Deletion
    upkeep: Upkeep
    scrubber: Scrubber


def assemble(
    files: Files,
    config: CommitLogConfig,
    recovered: Recovered,
    *,
    own_state: OwnState,
    states: StateCell,
    role_file: RoleFile,
    membership: Membership,
    master_confirmed: MasterConfirmed,
    replicas: Replicas,
    topics: TopicTable,
    gate: WriteGate,
    puts: Puts,
    clock: Clock,
    store_clock: StoreClock,
    random: Random,
    workers: Workers,
    reserve: Reserve,
    store_host: bytes,
    wake: Callable[[], None],
    write_failed: Callable[[OSError], None],
) -> LogParts:
    """Parts of a log that was recovered and ends at `recovered.end`. Opens its last segment, and
    gives nothing to a worker."""
    end, sync_flush = recovered.end, config.flush_disk_type == "SYNC_FLUSH"
    offsets = LogOffsets(recovered.minimum, end, end, end, end)
    jobs = Jobs(workers.allocate, reserve)

    # Writing
    segments = SegmentSet(
        files,
        workers.allocate,
        recovered.segment_bytes,
        recovered.segments,
        end,
        config.disk_refuse_ratio,
    )
    commit = GroupCommit(
        workers.flush,
        segments.flush_task,
        clock,
        flushed=end,
        timeout_ms=config.sync_flush_timeout_ms,
    )
    hub = FollowHub(recovered.segment_bytes, offsets, states)
    waiters = ReplicaWaiters(replicas, offsets, clock, timeout_ms=config.slave_timeout_ms)
    acknowledgement = Acknowledgement(commit, waiters, states, gate, sync_flush=sync_flush)
    appender = Appender(
        segments,
        QueueOffsets(recovered.queues),
        end,
        recovered.store_timestamp_ms,
        clock=store_clock,
        rules=FrameRules(
            store_host=store_host,
            max_message_bytes=config.max_message_bytes,
            version2=config.write_v2,
            property_checksum=config.property_checksum,
        ),
        pass_bytes=config.pass_bytes,
        pass_messages=config.pass_messages,
        commit=acknowledgement.when_safe,
        on_appended=hub.appended,
        on_write_failed=write_failed,
    )
    gate.backlog_bytes = lambda: appender.pending_bytes

    def enqueue(item: PutItem | BatchItem) -> None:
        appender.enqueue(item)
        wake()

    preparer = Preparer(
        topics,
        store_host=store_host,
        delay_levels_ms=parse_delay_levels(config.message_delay_level),
        max_message_bytes=config.max_message_bytes,
        segment_bytes=recovered.segment_bytes,
        property_checksum=config.property_checksum,
        write_v2=config.write_v2,
    )
    puts.begin(
        preparer, enqueue, recovered.segment_bytes, lambda: waiters.obstacle(states.now.role)
    )

    def discover_topics() -> None:
        topics.discover(appender.queues.undiscovered())

    # Upkeep
    reads = LogReads(files, recovered.segment_bytes, offsets)
    snapshots = Snapshots(
        own_state,
        appender,
        offsets,
        states,
        commit,
        reads,
        jobs,
        interval_ms=config.snapshot_interval_ms,
    )
    deletion = Deletion(
        segments,
        offsets,
        hub,
        snapshots,
        gate,
        jobs,
        clock,
        followers=config.followers,
        release_timeout_ms=config.release_timeout_ms,
    )
    upkeep = Upkeep(
        jobs,
        offsets,
        segments,
        snapshots,
        Checkpoints(files, clock, offsets, appender, hub, jobs, followers=config.followers),
        deletion,
        DiskLevel(
            files,
            reserve,
            gate,
            jobs,
            refuse_ratio=config.disk_refuse_ratio,
            resume_ratio=config.disk_resume_ratio,
        ),
        topics,
        master_confirmed,
        store_clock,
    )
    scrubber = Scrubber(files, workers.scrub or workers.allocate, segments, offsets, config, clock)

    # Replication
    high_water_mark = HighWaterMark(
        offsets,
        states,
        gate,
        hub,
        replicas,
        master_confirmed,
        sync_flush=sync_flush,
        hold_without_slave=config.hold_without_slave,
    )
    role_changes = RoleChanges(
        states=states,
        role_file=role_file,
        own_state=own_state,
        membership=membership,
        offsets=offsets,
        gate=gate,
        appender=appender,
        hub=hub,
        replicas=replicas,
        waiters=waiters,
        master_confirmed=master_confirmed,
        high_water_mark=high_water_mark,
        random=random,
        segment_bytes=recovered.segment_bytes,
        property_checksum=config.property_checksum,
        discover_topics=discover_topics,
    )
    cutting = Cutting(
        files=files,
        states=states,
        own_state=own_state,
        membership=membership,
        offsets=offsets,
        segments=segments,
        gate=gate,
        appender=appender,
        commit=commit,
        hub=hub,
        master_confirmed=master_confirmed,
        high_water_mark=high_water_mark,
        sync_flush=sync_flush,
    )
    slave_data = SlaveData(
        states=states,
        offsets=offsets,
        segments=segments,
        gate=gate,
        appender=appender,
        commit=commit,
        hub=hub,
        master_confirmed=master_confirmed,
        high_water_mark=high_water_mark,
        snapshots=snapshots,
        wake=wake,
        discover_topics=discover_topics,
    )
    return LogParts(
        offsets=offsets,
        hub=hub,
        segments=segments,
        commit=commit,
        appender=appender,
        reads=reads,
        procedures=Procedures(commit, workers.allocate, gate),
        high_water_mark=high_water_mark,
        replica_waiters=waiters,
        role_changes=role_changes,
        cutting=cutting,
        slave_data=slave_data,
        snapshots=snapshots,
        deletion=deletion,
        upkeep=upkeep,
        scrubber=scrubber,
    )
