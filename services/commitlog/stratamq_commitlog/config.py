"""Settings of the commit log service; `docs/configuration.md` is made from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.errors import InvalidRequestError
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_TEXT, parse_delay_levels
from stratamq.service.config import ServiceConfig, setting

MIB = 1 << 20


@dataclass(frozen=True)
class CommitLogConfig(ServiceConfig):
    """One broker's log."""

    segment_bytes: int = setting(
        1024 * MIB,
        unit="bytes",
        minimum=128,
        maximum=1 << 40,
        rocketmq="mappedFileSizeCommitLog",
        doc="Size of a segment. An existing directory keeps the size of its files.",
    )
    flush_disk_type: str = setting(
        "SYNC_FLUSH",
        unit="",
        choices=("SYNC_FLUSH", "ASYNC_FLUSH"),
        rocketmq="flushDiskType",
        doc="When appends are acknowledged: once on the disk, or once in the page cache.",
    )
    flush_interval_ms: int = setting(
        500,
        unit="ms",
        minimum=1,
        maximum=3_600_000,
        rocketmq="flushIntervalCommitLog",
        doc="Interval between flushes under ASYNC_FLUSH.",
    )
    sync_flush_timeout_ms: int = setting(
        5_000,
        unit="ms",
        minimum=1,
        maximum=3_600_000,
        rocketmq="syncFlushTimeout",
        doc="Time after which a waiting append is answered FLUSH_DISK_TIMEOUT: stored, not "
        "confirmed.",
    )
    disk_stall_ms: int = setting(
        5_000,
        unit="ms",
        minimum=100,
        maximum=3_600_000,
        doc="Duration of a flush, or of the allocation of a segment that appends wait for, from "
        "which the disk counts as stalled: health reports it, and appends get "
        "RESOURCE_EXHAUSTED until the stall ends.",
    )
    clock_jump_limit_ms: int = setting(
        3_600_000,
        unit="ms",
        minimum=0,
        maximum=365 * 24 * 3_600_000,
        doc="If the wall clock jumps ahead by more, it is not used until it is right again or "
        "`stratamq clock --confirm` confirms it; messages get the log's own time. 0: always used.",
    )
    max_message_bytes: int = setting(
        4 * MIB,
        unit="bytes",
        minimum=1,
        maximum=256 * MIB,
        rocketmq="maxMessageSize",
        doc="Largest body; a larger one is refused with MESSAGE_ILLEGAL.",
    )
    max_batch_bytes: int = setting(
        4 * MIB,
        unit="bytes",
        minimum=128,
        maximum=64 * MIB,
        doc="Largest batch of an append stream, in bytes of frames.",
    )
    max_batch_messages: int = setting(
        16_384,
        unit="messages",
        minimum=1,
        maximum=1 << 20,
        doc="Largest batch of an append stream, in frames.",
    )
    max_call_messages: int = setting(
        1_024,
        unit="messages",
        minimum=1,
        maximum=16_384,
        doc="Largest number of messages in one unary Append or AppendRaw; a call with more is "
        "refused with INVALID_ARGUMENT, and nothing is stored.",
    )
    pass_bytes: int = setting(
        1 * MIB,
        unit="bytes",
        minimum=4096,
        maximum=64 * MIB,
        doc="Bytes that one pass appends before other work runs; keeps a pass under 2 ms.",
    )
    pass_messages: int = setting(
        1_024,
        unit="messages",
        minimum=1,
        maximum=1 << 20,
        doc="Messages that one pass appends before other work runs.",
    )
    max_pending_bytes: int = setting(
        64 * MIB,
        unit="bytes",
        minimum=1 * MIB,
        maximum=1 << 34,
        doc="Bytes of waiting appends beyond which further ones are answered OS_PAGECACHE_BUSY: "
        "retry later.",
    )
    auto_create_topics: bool = setting(
        True,
        unit="",
        rocketmq="autoCreateTopicEnable",
        doc="Create a topic when a message is sent to an unknown one.",
    )
    default_topic_queues: int = setting(
        4,
        unit="queues",
        minimum=1,
        maximum=65_536,
        rocketmq="defaultTopicQueueNums",
        doc="Queues of a topic that is created by its first message.",
    )
    property_checksum: bool = setting(
        True,
        unit="",
        rocketmq="enabledAppendPropCRC",
        doc="End every frame with a checksum of the whole record, as RocketMQ 5.3.3 and later can; "
        "older versions treat it as an ordinary property. Recovery, reads and the scrubber verify "
        "it.",
    )
    write_v2: bool = setting(
        False,
        unit="",
        rocketmq="autoMessageVersionOnTopicLen",
        doc="Write version 2 frames for topics of more than 127 bytes. RocketMQ 4.x cuts a log at "
        "its first one.",
    )
    message_delay_level: str = setting(
        DEFAULT_DELAY_LEVELS_TEXT,
        unit="",
        rocketmq="messageDelayLevel",
        doc="Delays of levels 1, 2, …",
    )
    timer_max_delay_ms: int = setting(
        31_622_400_000,
        unit="ms",
        minimum=0,
        maximum=315_360_000_000,
        rocketmq="timerMaxDelaySec",
        doc="How far ahead the time of a message may be that is delivered at a time of its own "
        "(TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC): 366 days; RocketMQ's default is 3.",
    )
    broker_name: str = setting(
        "broker-a", unit="", rocketmq="brokerName", doc="Name that a master and its slaves share."
    )
    broker_id: int = setting(
        0,
        unit="",
        minimum=0,
        maximum=1 << 31,
        rocketmq="brokerId",
        doc="The broker's number as a slave; 0 counts as 1. A master's is always 0.",
    )
    role: str = setting(
        "ASYNC_MASTER",
        unit="",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        rocketmq="brokerRole",
        doc="Initial role: whether this log takes messages, and waits for its slaves. `stratamq "
        "replica promote` and `demote` change the role permanently.",
    )
    wait_for_peers: bool = setting(
        False,
        unit="",
        doc="Take no messages, from the first start on, until the replication service has asked "
        "the other members (ha.members). Later starts remember whether there are any.",
    )
    lease: bool = setting(
        False,
        unit="",
        doc="An ASYNC_MASTER takes messages and answers PUT_OK only while its broker's agent "
        "grants it a lease, so that no two masters acknowledge after a promotion. `stratamq "
        "up` sets it if agent.store is set.",
    )
    take_back: bool = setting(
        True,
        unit="",
        doc="After an unclean stop a SYNC_MASTER with members under ASYNC_FLUSH takes no messages "
        "until all of them have responded and it has recovered from its slaves what it had lost.",
    )
    required_replicas: int = setting(
        1,
        unit="slaves",
        minimum=1,
        maximum=16,
        rocketmq="inSyncReplicas",
        doc="Number of slaves that must acknowledge under SYNC_MASTER.",
    )
    slave_timeout_ms: int = setting(
        3_000,
        unit="ms",
        minimum=1,
        maximum=3_600_000,
        rocketmq="slaveTimeout",
        doc="Time after which an append under SYNC_MASTER is answered FLUSH_SLAVE_TIMEOUT.",
    )
    slave_max_gap_bytes: int = setting(
        268_435_456,
        unit="bytes",
        minimum=1,
        maximum=1 << 40,
        rocketmq="haSlaveFallbehindMax",
        doc="Lag from which a slave does not count as available.",
    )
    hold_without_slave: bool = setting(
        True,
        unit="",
        doc="Under SYNC_MASTER show consumers nothing that k slaves do not have, even while fewer "
        "than k are connected. If false, consumers see what is stored, which may vanish at a "
        "promotion.",
    )
    store_host: str = setting(
        "127.0.0.1:10911",
        unit="host:port",
        rocketmq="brokerIP1",
        doc="STOREHOST of every frame and message ID: an IP address at which clients reach this "
        "broker.",
    )
    followers: tuple[str, ...] = setting(
        ("dispatcher", "index"),
        unit="",
        doc="Followers that must confirm the final offset before a stop counts as clean.",
    )
    follower_stop_timeout_ms: int = setting(
        10_000,
        unit="ms",
        minimum=0,
        maximum=600_000,
        doc="Time that a stop waits for followers; after that `abort` stays, and RocketMQ would "
        "recover.",
    )
    release_timeout_ms: int = setting(
        120_000,
        unit="ms",
        minimum=0,
        maximum=3_600_000,
        rocketmq="destroyMapedFileIntervalForcibly",
        doc="Time that a deleted segment waits for followers to release it before it is unlinked.",
    )
    disk_refuse_ratio: float = setting(
        0.90,
        unit="ratio",
        minimum=0.1,
        maximum=1.0,
        rocketmq="diskSpaceWarningLevelRatio",
        doc="Used share of the volume above which appends are refused.",
    )
    disk_resume_ratio: float = setting(
        0.88,
        unit="ratio",
        minimum=0.0,
        maximum=1.0,
        doc="Used share of the volume down to which appends stay refused.",
    )
    reserve_bytes: int = setting(
        16 * MIB,
        unit="bytes",
        minimum=0,
        maximum=1 << 40,
        doc="Disk space reserved for recovery and for the log's own state on a full volume.",
    )
    producer_window_bytes: int = setting(
        64 * MIB,
        unit="bytes",
        minimum=0,
        maximum=1 << 34,
        doc="Size of the log's end that is read when the log begins to take messages, to recognise "
        "messages that producers resend.",
    )
    page_entries: int = setting(
        500,
        unit="entries",
        minimum=1,
        maximum=10_000,
        doc="Entries in one response that lists queues or topics: larger tables are sent in pages.",
    )
    snapshot_interval_ms: int = setting(
        5_000,
        unit="ms",
        minimum=10,
        maximum=3_600_000,
        doc="Interval between saves of the next queue offsets; bounds what recovery reads.",
    )
    scrub_bytes_per_second: int = setting(
        4 * MIB,
        unit="bytes/s",
        minimum=0,
        maximum=1 << 40,
        doc="Rate at which the scrubber reads full segments and verifies every record; 0: off.",
    )
    scrub_interval_ms: int = setting(
        7 * 24 * 3_600_000,
        unit="ms",
        minimum=1,
        maximum=365 * 24 * 3_600_000,
        doc="Time from the start of one pass of the scrubber to the start of the next.",
    )
    check_crc_on_recover: bool = setting(
        True,
        unit="",
        rocketmq="checkCRCOnRecover",
        doc="Verify body checksums in recovery.",
    )
    recovery_processes: int = setting(
        0,
        unit="processes",
        minimum=0,
        maximum=4,
        doc="Number of processes that walk segments in recovery, including the log service, if "
        "there are several segments to walk; 0: one per CPU, at most 4.",
    )

    def faults(self) -> Iterable[str]:
        try:
            parse_delay_levels(self.message_delay_level)
        except InvalidRequestError as error:
            yield f"message_delay_level: {error}"
