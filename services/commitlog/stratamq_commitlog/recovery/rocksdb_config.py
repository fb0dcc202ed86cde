"""Refuses a store whose topics and group offsets RocketMQ 5.x keeps in RocksDB, not in JSON.

Nothing here reads RocksDB: without those tables the queues' numbers of each topic are unknown and
every group would begin at the earliest message; a JSON file beside them may be older than they are.
`rocksdbstore/`, which RocketMQ 5.5 opens always, is no such table: queues are built from the log.
"""

from stratamq.errors import StoreRefusedError
from stratamq.files.port import Files
from stratamq.formats.store_paths import CONSUMER_OFFSETS_PATH, ROCKSDB_TABLES, TOPICS_PATH

_MARK = "CURRENT"
"""In the directory of every RocksDB database: the name of its manifest."""


def require_json(files: Files) -> None:
    """StoreRefusedError with the tables and the way out."""
    found = [table for table in ROCKSDB_TABLES if files.entry(f"{table}/{_MARK}") is not None]
    if found:
        raise StoreRefusedError(
            f"RocketMQ keeps this broker's configuration in RocksDB ({', '.join(found)}), and "
            f"only JSON is read here. Export it to {TOPICS_PATH} and {CONSUMER_OFFSETS_PATH} "
            "with RocketMQ's `mqadmin rocksDBConfigToJson`, or start RocketMQ once without its "
            "RocksDB configuration; compare the group offsets; then "
            "move these directories out of config/ and start again"
        )
