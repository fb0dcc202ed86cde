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
        doc="What an acknowledgement means: on disk, or in the page cache.",
    )
    flush_interval_ms: int = setting(
        500,
        unit="ms",
        minimum=1,
        maximum=3_600_000,
        rocketmq="flushIntervalCommitLog",
        doc="How often ASYNC_FLUSH flushes.",
    )
    sync_flush_timeout_ms: int = setting(
        5_000,
        unit="ms",
        minimum=1,
        maximum=3_600_000,
        rocketmq="syncFlushTimeout",
        doc="After so long an append is answered FLUSH_DISK_TIMEOUT: stored, not confirmed.",
    )
    disk_stall_ms: int = setting(
        5_000,
        unit="ms",
        minimum=100,
        maximum=3_600_000,
        doc="A flush, or a segment that appends wait for, that takes so long: the disk is "
        "stalled, health reports it, and appends get RESOURCE_EXHAUSTED until it ends.",
    )
    clock_jump_limit_ms: int = setting(
        3_600_000,
        unit="ms",
        minimum=0,
        maximum=365 * 24 * 3_600_000,
        doc="A wall clock that jumps ahead by more is not used until it is right again or "
        "`stratamq clock --confirm` confirms it: messages get the log's own time; 0: always used.",
    )
    max_message_bytes: int = setting(
        4 * MIB,
        unit="bytes",
        minimum=1,
        maximum=256 * MIB,
        rocketmq="maxMessageSize",
        doc="Largest body. A larger one is MESSAGE_ILLEGAL.",
    )
    max_batch_bytes: int = setting(
        4 * MIB,
        unit="bytes",
        minimum=128,
        maximum=64 * MIB,
        doc="Largest batch of the fast stream, in bytes of frames.",
    )
    max_batch_messages: int = setting(
        16_384,
        unit="messages",
        minimum=1,
        maximum=1 << 20,
        doc="Largest batch of the fast stream, in frames.",
    )
    max_call_messages: int = setting(
        1_024,
        unit="messages",
        minimum=1,
        maximum=16_384,
        doc="Most messages of one unary Append or AppendRaw; more are refused before anything is "
        "stored, with INVALID_ARGUMENT.",
    )
    pass_bytes: int = setting(
        1 * MIB,
        unit="bytes",
        minimum=4096,
        maximum=64 * MIB,
        doc="How much one pass appends before others get their turn; keeps a pass under 2 ms.",
    )
    pass_messages: int = setting(
        1_024,
        unit="messages",
        minimum=1,
        maximum=1 << 20,
        doc="The same as a number of messages.",
    )
    max_pending_bytes: int = setting(
        64 * MIB,
        unit="bytes",
        minimum=1 * MIB,
        maximum=1 << 34,
        doc="Waiting appends beyond this are answered OS_PAGECACHE_BUSY: come back later.",
    )
    auto_create_topics: bool = setting(
        True,
        unit="",
        rocketmq="autoCreateTopicEnable",
        doc="A message to an unknown topic creates it.",
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
        doc="End every frame in a checksum of the whole record, as RocketMQ 5.3.3 and later can; "
        "to older ones it is a property like others. Recovery, reads and the scrubber verify it.",
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
        doc="The delays of levels 1, 2, …",
    )
    broker_name: str = setting(
        "broker-a", unit="", rocketmq="brokerName", doc="The name that a master and slaves share."
    )
    broker_id: int = setting(
        0,
        unit="",
        minimum=0,
        maximum=1 << 31,
        rocketmq="brokerId",
        doc="The broker's number as a slave, 0 counts as 1. As a master it is always 0.",
    )
    role: str = setting(
        "ASYNC_MASTER",
        unit="",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        rocketmq="brokerRole",
        doc="Whether this log takes messages, and waits for its slaves. This is the first role: "
        "`stratamq replica promote` and `demote` change it for good.",
    )
    wait_for_peers: bool = setting(
        False,
        unit="",
        doc="Take no messages, from the first start on, before the replication service has asked "
        "the other members (ha.members). Later starts remember that there are any.",
    )
    lease: bool = setting(
        False,
        unit="",
        doc="An ASYNC_MASTER takes messages, and answers PUT_OK, only while its broker's agent "
        "grants it: so no two masters answer when another was promoted. `stratamq up` sets it "
        "where agent.store is set.",
    )
    take_back: bool = setting(
        True,
        unit="",
        doc="A SYNC_MASTER with members under ASYNC_FLUSH, after a stop that was not clean, takes "
        "no messages before all of them have answered and what its slaves hold of its own is back.",
    )
    required_replicas: int = setting(
        1,
        unit="slaves",
        minimum=1,
        maximum=16,
        rocketmq="inSyncReplicas",
        doc="How many slaves must acknowledge under SYNC_MASTER.",
    )
    slave_timeout_ms: int = setting(
        3_000,
        unit="ms",
        minimum=1,
        maximum=3_600_000,
        rocketmq="slaveTimeout",
        doc="After so long an append under SYNC_MASTER is answered FLUSH_SLAVE_TIMEOUT.",
    )
    slave_max_gap_bytes: int = setting(
        268_435_456,
        unit="bytes",
        minimum=1,
        maximum=1 << 40,
        rocketmq="haSlaveFallbehindMax",
        doc="A slave this far behind does not count as available.",
    )
    hold_without_slave: bool = setting(
        True,
        unit="",
        doc="Under SYNC_MASTER show consumers nothing that k slaves do not have, also while fewer "
        "than k are connected. Off: they see what is stored, and it may vanish at a promotion.",
    )
    store_host: str = setting(
        "127.0.0.1:10911",
        unit="host:port",
        rocketmq="brokerIP1",
        doc="STOREHOST of every frame and message id: an IP address at which clients reach us.",
    )
    followers: tuple[str, ...] = setting(
        ("dispatcher", "index"),
        unit="",
        doc="Who must have reported the end before a stop counts as clean.",
    )
    follower_stop_timeout_ms: int = setting(
        10_000,
        unit="ms",
        minimum=0,
        maximum=600_000,
        doc="How long a stop waits for them; afterwards `abort` stays and RocketMQ recovers.",
    )
    release_timeout_ms: int = setting(
        120_000,
        unit="ms",
        minimum=0,
        maximum=3_600_000,
        rocketmq="destroyMapedFileIntervalForcibly",
        doc="How long a deleted segment waits for followers to let go before it is unlinked.",
    )
    disk_refuse_ratio: float = setting(
        0.90,
        unit="ratio",
        minimum=0.1,
        maximum=1.0,
        rocketmq="diskSpaceWarningLevelRatio",
        doc="Writes are refused while more of the volume is used.",
    )
    disk_resume_ratio: float = setting(
        0.88,
        unit="ratio",
        minimum=0.0,
        maximum=1.0,
        doc="Refused writes are taken again once no more of the volume is used than this.",
    )
    reserve_bytes: int = setting(
        16 * MIB,
        unit="bytes",
        minimum=0,
        maximum=1 << 40,
        doc="Disk space kept back for recovery and for the log's own state on a full volume.",
    )
    producer_window_bytes: int = setting(
        64 * MIB,
        unit="bytes",
        minimum=0,
        maximum=1 << 34,
        doc="How much of the log's end is read when it begins to take messages, for the window in "
        "which messages that a producer sends again are recognised.",
    )
    page_entries: int = setting(
        500,
        unit="entries",
        minimum=1,
        maximum=10_000,
        doc="Entries of one answer that lists queues or topics: a larger table goes in pages.",
    )
    snapshot_interval_ms: int = setting(
        5_000,
        unit="ms",
        minimum=10,
        maximum=3_600_000,
        doc="How often the next queue offsets are saved; bounds what recovery scans.",
    )
    scrub_bytes_per_second: int = setting(
        4 * MIB,
        unit="bytes/s",
        minimum=0,
        maximum=1 << 40,
        doc="How fast the scrubber reads full segments and verifies every record; 0: it does not.",
    )
    scrub_interval_ms: int = setting(
        7 * 24 * 3_600_000,
        unit="ms",
        minimum=1,
        maximum=365 * 24 * 3_600_000,
        doc="How long after the beginning of one pass of the scrubber the next one begins.",
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
        doc="How many processes walk segments in recovery at the same time, the log service itself "
        "included, once there are several to walk; 0: one for each processor, at most 4.",
    )

    def faults(self) -> Iterable[str]:
        try:
            parse_delay_levels(self.message_delay_level)
        except InvalidRequestError as error:
            yield f"message_delay_level: {error}"
