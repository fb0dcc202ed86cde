"""Messages that are larger than a request may be are read wherever they are stored."""

import random

import pytest

from stratamq.client import Client, Message, connect
from tests.support.brokers import Broker
from tests.support.waiting import until, until_indexed
from tests.tier_service.test_uploading import Tier, ends, settings

ROOMS = ("commitlog", "dispatcher", "index", "tier")
SEGMENT = 16 << 20
BODY = random.Random(9).randbytes(9 << 20)


@pytest.fixture
def client(tmp_path):
    given = settings(
        tmp_path,
        "commitlog.release_timeout_ms=0",
        "commitlog.followers=dispatcher,index",
        "commitlog.max_message_bytes=33554432",
        "tier.index_slots=0",
    )
    given = (*given, f"commitlog.segment_bytes={SEGMENT}")
    with Broker(tmp_path / "store", tmp_path / "logs", given) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            yield client


def send(client: Client, *keys: str) -> None:
    with client.producer() as producer:
        for key in keys:
            producer.send_message(Message("t", BODY, keys=[key], queue_id=0))


def require_readable(client: Client) -> None:
    """The first message, by every way to it."""
    (pulled,) = client.pull("t", 0, 0, max_messages=1).messages
    with client.consume("t", queues=[0]) as reader:
        consumed = next(reader)
    (found,) = client.query_key("t", "first").messages
    for one in (pulled, consumed, found):
        assert (one.queue_offset, one.keys) == (0, ["first"])
        assert one.body == BODY


def test_a_message_of_nine_mib_is_read_from_the_log(client):
    send(client, "first")
    until_indexed(client)
    require_readable(client)


def test_a_message_of_nine_mib_is_read_from_the_tier(client, tmp_path):
    send(client, "first", "second")
    until_indexed(client)
    until(lambda: ends(Tier(tmp_path)) == {("t", 0): 2}, "both are in the tier")
    until(lambda: client.admin.delete_below(SEGMENT)[0] == SEGMENT, "the first one leaves the log")
    until(lambda: client.queues("t")[0].min_offset == 0, "the tier is known")
    until(lambda: client.query_key("t", "first").messages, "its key is in the tier's index")
    require_readable(client)
