"""A store whose configuration RocketMQ keeps in RocksDB is refused, with the way out."""

import pytest

from stratamq.errors import StoreRefusedError
from stratamq.formats.store_paths import ROCKSDB_TABLES
from tests.support.disks import write_file
from tests.support.logs import Store


def stored() -> Store:
    store = Store()
    store.start()
    store.put(b"x")
    store.stop()
    return store


@pytest.mark.parametrize("table", ROCKSDB_TABLES)
@pytest.mark.parametrize("json_too", [False, True])
def test_configuration_in_rocksdb_is_refused_by_name_whatever_json_is_beside_it(table, json_too):
    store = stored()
    files = store.new_files()
    write_file(files, f"{table}/CURRENT", b"MANIFEST-000005\n")
    if json_too:
        write_file(files, "config/consumerOffset.json", b'{"offsetTable":{}}')
    log = files.list("commitlog")
    with pytest.raises(StoreRefusedError, match=rf"{table}\).*rocksDBConfigToJson.*move") as caught:
        store.start()
    assert "\n" not in str(caught.value)
    assert files.list("commitlog") == log
    assert files.entry("abort") is None
    # The way out: once the directory is gone, what is in JSON counts.
    files.make_directory("elsewhere")
    files.replace(table, "elsewhere/table")
    store.kill()
    store.start()


def test_the_queue_database_that_rocketmq_always_opens_refuses_nothing():
    store = stored()
    write_file(store.new_files(), "rocksdbstore/CURRENT", b"MANIFEST-000005\n")
    store.start()
