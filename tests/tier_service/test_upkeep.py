"""What leaves the tier beside retention by age: what was purged, and what crashes left."""

import os

import pytest

from stratamq.client import connect
from stratamq.client.topic_purge import QueuePurge
from tests.support.brokers import Broker
from tests.support.waiting import until
from tests.tier_service.test_uploading import ALL, ROOMS, Tier, ends, send, settings

TWO_DAYS_S = 2 * 86_400


@pytest.fixture
def client(tmp_path):
    given = settings(tmp_path, "tier.retention_interval_ms=100")
    with Broker(tmp_path / "store", tmp_path / "logs", given) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            send(client, 0, 1000)
            until(lambda: ends(Tier(tmp_path)) == ALL, "all messages are in the tier")
            yield client


def test_what_was_purged_leaves_the_tier_so_that_no_client_reads_it_there(client, tmp_path):
    tier = Tier(tmp_path)
    some, all_of_it = QueuePurge("t", 0, 0, 100, 250), QueuePurge("t", 1, 0, 250, 250)
    client.admin.purge_topic("t", [some, all_of_it])
    until(lambda: tier.messages()["t", 0] == (100, 250), "the tier begins where the queue does")
    until(lambda: tier.messages()["t", 1] == (250, 250), "a whole queue goes")
    assert tier.messages()["t", 2] == (0, 250)
    send(client, 1000, 4)
    until(lambda: tier.messages()["t", 1] == (250, 251), "it continues")
    until(lambda: client.queues("t")[0].min_offset == 100, "the dispatcher knows, too")
    assert len(list(client.consume("t"))) == 1000 - 350 + 4
    assert tier.faults() == []


def test_what_nothing_names_is_deleted_a_day_later_by_the_service_itself(client, tmp_path):
    (folder,) = (tmp_path / "tier").glob("*/broker-a/t/2/COMMIT_LOG")
    named = set(folder.iterdir())
    old, young = folder / "00000000000000000000.1-1-1-1.json", folder / "left"
    for path in (old, young):
        path.write_bytes(b"[]")
    stat = old.stat()
    os.utime(old, (stat.st_atime - TWO_DAYS_S, stat.st_mtime - TWO_DAYS_S))
    until(lambda: not old.exists(), "it is swept")
    assert set(folder.iterdir()) == named | {young}
    assert Tier(tmp_path).faults() == []
