"""Files of deleted messages go from every queue, however few are looked at in one step."""

import pytest
from stratamq_dispatcher import queue_table

from stratamq.files.simulated import SimulatedDisk
from tests.dispatcher.followed_log import WrittenLog, start
from tests.dispatcher.queue_checks import check_queues, contents


@pytest.mark.parametrize(("looked_at", "expired"), [(1, 1), (2, 1), (3, 2), (100, 1)])
def test_whole_files_below_the_minimum_go_from_every_queue(monkeypatch, looked_at, expired):
    monkeypatch.setattr(queue_table, "LOOKED_AT_PER_STEP", looked_at)
    monkeypatch.setattr(queue_table, "EXPIRED_PER_STEP", expired)
    disk = SimulatedDisk()
    log = WrittenLog(disk.files(), segment_bytes=1024)
    log.put_many(200, topics=2, queues=5)
    broker = start(disk.files(), log, queue_file_bytes=100)
    broker.follow()
    assert len(contents(disk.files())) == 10 * 4
    log.delete_below(log.messages[-1].offset // 1024 * 1024)
    broker.follow()
    while not broker.engine.at_rest:
        broker.flush()
    assert len(contents(disk.files())) == 10
    check_queues(broker)
