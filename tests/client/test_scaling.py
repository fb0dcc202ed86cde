"""What a shard that comes lacks, and what one that goes still holds."""

import pytest

from stratamq.client import Drain, GroupQueue, Queue, Topic
from stratamq.client.scaling import (
    Unread,
    cluster_topics,
    differing_topics,
    lacking_topics,
    leftovers,
)
from stratamq.formats.topics import HALF_TOPIC, SCHEDULE_TOPIC, TRACE_TOPIC


def queue(topic: str, number: int, least: int, most: int) -> Queue:
    return Queue(topic, number, least, most, 0)


def committed(group: str, topic: str, number: int, offset: int) -> GroupQueue:
    return GroupQueue(group, topic, number, offset, 0, 0)


QUEUES = [queue("t", 0, 0, 10), queue("t", 1, 5, 10)]


def test_a_group_lacks_what_is_behind_its_place_and_all_of_queues_without_one():
    found = leftovers(QUEUES, [committed("g", "t", 0, 7), committed("g", "t", 1, -1)], [])
    assert found.unread == (Unread("g", "t", 3 + 5),)
    assert not found.consumed


def test_a_group_that_reads_the_topic_at_another_shard_alone_lacks_everything():
    found = leftovers(QUEUES, [], [committed("g", "t", 0, 10), committed("h", "other", 0, 1)])
    assert found.unread == (Unread("g", "t", 15),)
    assert found.ungrouped == ()


def test_messages_that_were_purged_are_lacked_by_no_group():
    done = [committed("g", "t", 0, 10), committed("g", "t", 1, 2)]
    assert leftovers([queue("t", 1, 10, 10), QUEUES[0]], done, done).consumed


def test_what_every_group_has_consumed_is_shown_with_nothing_left():
    done = [committed("g", "t", 0, 10), committed("g", "t", 1, 10)]
    found = leftovers(QUEUES, done, done)
    assert (found.unread, found.consumed, found.lost) == ((Unread("g", "t", 0),), True, [])


def test_messages_without_a_group_delayed_and_half_messages_would_be_lost():
    held = [
        queue("t", 0, 0, 3), queue("empty", 0, 4, 4), queue(SCHEDULE_TOPIC, 2, 0, 2),
        queue(SCHEDULE_TOPIC, 3, 0, 2), queue(HALF_TOPIC, 0, 0, 1), queue(TRACE_TOPIC, 0, 0, 9),
    ]  # fmt: skip
    found = leftovers(held, [], [])
    assert found.consumed
    assert found.lost == [
        "3 messages of t, which no group reads",
        "4 delayed messages",
        "1 half messages",
    ]


def test_a_topic_is_taken_from_the_first_shard_that_takes_messages():
    topics = [
        Topic("t", 4, 4, broker="b"), Topic("t", 4, 4, 4, broker="a"), Topic("t", 2, 2, broker="c"),
        Topic("u", 1, 1, 4, broker="a"), Topic(TRACE_TOPIC, broker="b"),
    ]  # fmt: skip
    assert cluster_topics(topics, {"a"}) == [Topic("t", 4, 4)]
    assert differing_topics(topics, {"a"}) == ["t"]
    assert differing_topics(topics[:1], {"a"}) == []


@pytest.mark.parametrize(
    ("there", "drain", "lacking"),
    [
        ([], Drain.OPEN, True),
        ([Topic("t", 2, 2)], Drain.OPEN, False),
        ([Topic("t", 2, 2, 4)], Drain.OPEN, True),
        ([Topic("t", 2, 2, 4)], Drain.DRAINED, False),
        ([Topic("t", 3, 2)], Drain.OPEN, False),
        ([Topic("t", 2, 3)], Drain.OPEN, True),
        ([Topic("t", 2, 2, ordered=True)], Drain.OPEN, True),
    ],
    ids=["missing", "same", "read only", "hidden by a drain", "messages in more queues",
         "more to write", "ordered"],
)  # fmt: skip
def test_a_topic_that_is_missing_or_differs_is_lacked(there, drain, lacking):
    wanted = [Topic("t", 2, 2)]
    assert lacking_topics(wanted, there, drain) == (wanted if lacking else [])
