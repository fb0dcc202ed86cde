"""What it costs that many queues begin: thousands of topics must not hold up the watermark."""

import os

from stratamq.files import system_calls
from stratamq.files.real import RealFiles
from tests.dispatcher.followed_log import WrittenLog, start
from tests.dispatcher.queue_checks import check_files, check_queues

QUEUES = 300


def test_many_new_queues_cost_few_syncs(tmp_path, monkeypatch):
    log = WrittenLog(RealFiles(tmp_path))
    log.put_many(QUEUES, topics=QUEUES, queues=1)
    syncs = []
    for place, name in [(os, "fsync"), (os, "fdatasync"), (system_calls, "sync_file_system")]:
        call = getattr(place, name)

        def counted(descriptor, call=call):
            syncs.append(call)
            call(descriptor)

        monkeypatch.setattr(place, name, counted)
    broker = start(RealFiles(tmp_path), log)
    broker.follow()
    broker.stop()
    assert len(syncs) < QUEUES / 4
    check_queues(broker)
    check_files(broker)
