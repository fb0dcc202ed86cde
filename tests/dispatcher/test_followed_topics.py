"""A topic without the permission to be read gives nothing to consumers, and everything when it has
it again."""

import asyncio
import json

import pytest

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.client import Topic, connect
from stratamq.errors import CorruptRecordError, NotPermittedError, UnavailableError
from stratamq.follow.followed_topics import FollowedTopics
from stratamq.formats.replication_metadata import MetadataKind, Page
from tests.dispatcher.running_service import RunningService, error_of
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker
from tests.support.waiting import until


def document(**permissions: int) -> bytes:
    table = {name: {"topicName": name, "perm": perm} for name, perm in permissions.items()}
    return json.dumps({"topicConfigTable": table}).encode()


async def test_a_pull_of_a_topic_that_may_not_be_read_is_refused(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.log.put("u")
        service.follow()
        service.permissions.take(document(t=2, u=6))
        error = await error_of(service.stub.Pull(pb.PullRequest(topic="t")))
        assert isinstance(error, NotPermittedError)
        assert "topics alter t --permission 6" in error.message
        assert await service.stub.Pull(pb.PullRequest(topic="u"))
        service.permissions.take(document(t=6))
        assert await service.stub.Pull(pb.PullRequest(topic="t"))


@pytest.mark.parametrize("wrong", [b"[]", b"{}", b'{"topicConfigTable": 1}', b"x"])
def test_a_page_that_is_none_is_refused_and_changes_nothing(wrong):
    permissions = FollowedTopics(lambda topic, floors: None)
    permissions.learned = True
    permissions.take(document(t=2))
    with pytest.raises(CorruptRecordError):
        permissions.take(wrong)
    with pytest.raises(NotPermittedError):
        permissions.require_readable("t")


def test_every_page_is_learned_and_a_log_that_is_away_is_asked_again(monkeypatch):
    pages = [
        Page(document(a=2), b"1" * 32, more=True),
        UnavailableError("away"),
        Page(document(b=2), b"2" * 32, more=False),
        Page(b"", b"3" * 32, more=False),
        Page(document(a=4), b"4" * 32, more=False),
    ]
    asked: list[bytes] = []
    monkeypatch.setattr("stratamq.follow.followed_topics.LOOK_S", 0.0)

    async def export(kind: MetadataKind, mark: bytes) -> Page:
        asked.append(mark)
        assert kind is MetadataKind.TOPICS
        if not pages:
            raise asyncio.CancelledError
        page = pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page

    permissions = FollowedTopics(lambda topic, floors: None)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(permissions.follow(export))
    assert [mark[:1] for mark in asked] == [b"\0", b"1", b"1", b"2", b"3", b"4"]
    permissions.require_readable("a")
    with pytest.raises(NotPermittedError):
        permissions.require_readable("b")


def test_a_reader_of_a_real_broker_is_refused_and_let_in_again(tmp_path):
    settings = ("commitlog.segment_bytes=1048576", "commitlog.followers=dispatcher")
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start([COMMITLOG, DISPATCHER])
        with connect(broker.root, retry_timeout_s=60) as client:
            client.send("t", b"1", queue_id=0)

            def refused() -> bool:
                try:
                    return [m.body for m in client.consume("t")] != [b"1"]
                except NotPermittedError:
                    return True

            assert not refused()
            client.admin.alter_topic("t", permission=2)
            until(refused, "the dispatcher has learned that t may not be read")
            with pytest.raises(NotPermittedError):
                client.pull("t", 0, 0)
            broker.kill(DISPATCHER)
            broker.start([DISPATCHER])
            until(refused, "a dispatcher that started anew has learned it too")
            client.admin.put_topic(Topic("t", 4, 4, 6))
            until(lambda: not refused(), "it has learned that t may be read")
