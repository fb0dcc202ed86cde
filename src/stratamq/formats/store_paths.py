"""The paths of everything in a store, relative to its directory: names that others rely on.

    commitlog/ consumequeue/ index/ config/ checkpoint abort lock      RocketMQ's
    stratamq/                                                          ours alone

ARCHITECTURE.md lists which service writes what.
"""

COMMIT_LOG = "commitlog"
CONSUME_QUEUES = "consumequeue"
INDEX = "index"
PARTS = (COMMIT_LOG, CONSUME_QUEUES, INDEX)
"""Each may be a mount, of a volume of its own."""
LOST_AND_FOUND = "lost+found"
"""A directory that a file system makes at its root: it is passed over."""
CHECKPOINT_PATH = "checkpoint"
ABORT_PATH = "abort"
LOCK_PATH = "lock"
STATE_TABLE = "transaction/statetable"
"""Written by RocketMQ 3.1; `stratamq dump` alone reads it."""
TOPICS_PATH = "config/topics.json"
CONSUMER_OFFSETS_PATH = "config/consumerOffset.json"
ROCKSDB_TABLES = (
    "config/consumerOffsets",
    "config/metadata",
    "config/subscriptionGroups",
    "config/topics",
)
"""Where RocketMQ 5.x keeps the same in RocksDB, by setting. Not read here."""
LIGHT_OFFSETS_PATH = "config/lmqConsumerOffset.json"
DELAY_OFFSETS_PATH = "config/delayOffset.json"
SUBSCRIPTION_GROUPS_PATH = "config/subscriptionGroup.json"
TIER_METADATA_PATH = "config/tieredStoreMetadata.json"

OWN_DIRECTORY = "stratamq"
TEMPORARY_DIRECTORY = f"{OWN_DIRECTORY}/tmp"
ASIDE_DIRECTORY = f"{OWN_DIRECTORY}/aside"
"""Where recovery copies what it cuts. Never read by StrataMQ; an operator may delete it."""
CHECKSUMS_DIRECTORY = f"{OWN_DIRECTORY}/checksums"
CHANGES_DIRECTORY = f"{OWN_DIRECTORY}/changes"
RUN_DIRECTORY = f"{OWN_DIRECTORY}/run"
LOGS_DIRECTORY = f"{OWN_DIRECTORY}/log"
UP_LOCK_PATH = f"{OWN_DIRECTORY}/up.lock"
"""Held by `stratamq up`."""
TIER_LOCK_PATH = f"{OWN_DIRECTORY}/tier.lock"
"""Held by the tier service; there in every store that ever had one."""
MOUNT_PATH = f"{OWN_DIRECTORY}/mount.json"
WRITTEN_TIER_PATH = f"{OWN_DIRECTORY}/tier.json"
RESERVE_PATH = f"{OWN_DIRECTORY}/reserve"

# The log's.
GENERATIONS_PATH = f"{OWN_DIRECTORY}/generations.json"
SNAPSHOT_PATH = f"{OWN_DIRECTORY}/queue-offsets.journal"
OLD_SNAPSHOT_PATH = f"{OWN_DIRECTORY}/queue-offsets.json"
"""Where releases without the journal keep the snapshot: the newer of the two counts, and this one
goes with the next that is written."""
CUT_PATH = f"{OWN_DIRECTORY}/cut.json"
MASTER_CONFIRMED_PATH = f"{OWN_DIRECTORY}/master-confirmed.json"
SCRUB_PATH = f"{OWN_DIRECTORY}/scrub.json"
FOUND_CLEAN_PATH = f"{OWN_DIRECTORY}/found-clean"
MEMBERS_PATH = f"{OWN_DIRECTORY}/members.json"
ROLE_PATH = f"{OWN_DIRECTORY}/role.json"
CLOCK_PATH = f"{OWN_DIRECTORY}/clock.json"
IDENTITY_PATH = f"{OWN_DIRECTORY}/identity.json"
RESTORING_PATH = f"{OWN_DIRECTORY}/restoring"
"""There while the store is made from a tier: no log begins in it before that is done."""
ORIGIN_PATH = f"{OWN_DIRECTORY}/origin.json"
SEALED_PATH = f"{OWN_DIRECTORY}/sealed.json"

# Replication's.
MASTER_ROLE_PATH = f"{OWN_DIRECTORY}/master-role.json"

# The dispatcher's.
DISPATCHER_STATE_PATH = f"{OWN_DIRECTORY}/dispatcher.json"
DISPATCHER_QUEUES_PATH = f"{OWN_DIRECTORY}/dispatcher-queues.journal"
OLD_DISPATCHER_QUEUES_PATH = f"{OWN_DIRECTORY}/dispatcher-queues.json"
"""Where releases without the journal keep the list: it counts with a state of theirs, and goes with
the next list that is written."""
DISPATCHER_STALE_PATH = f"{OWN_DIRECTORY}/dispatcher-stale.json"

# The index's.
INDEX_STATE_PATH = f"{OWN_DIRECTORY}/index.json"
INDEX_GEOMETRY_PATH = f"{OWN_DIRECTORY}/geometry.json"
INDEX_CHECKSUMS_PATH = f"{OWN_DIRECTORY}/index-checksums.json"

# The delivery's.
DELIVERY_STATE_PATH = f"{OWN_DIRECTORY}/delivery.json"

# The janitor's.
JANITOR_STATE_PATH = f"{OWN_DIRECTORY}/janitor.json"
RETENTION_PATH = f"{OWN_DIRECTORY}/retention.json"
