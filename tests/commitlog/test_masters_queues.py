"""A slave learns the next offsets of queues whose messages its master had deleted."""

import asyncio

import pytest
from stratamq_commitlog.use_cases.served_log import ServedLog

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import InvalidRequestError, NotWritableError
from tests.commitlog.served import servicer_of
from tests.commitlog.test_slave import copied, master
from tests.support.listeners import Listener
from tests.support.logs import Store

GONE = ("gone", 2, 70)


def learn(
    store: Store, *table: tuple[str, int, int], end: int | None = None, more: bool = False
) -> int:
    end = store.end() if end is None else end
    return store.log.slave_data.learn_queues(store.log.generation, end, table, more=more)


def test_a_queue_without_messages_here_continues_where_the_master_is():
    copy = copied(master())
    known = copy.queues()
    assert learn(copy, GONE) == 1
    assert copy.queues() == known | {("gone", 2): 70}
    assert copy.log.topics.get("gone").read_queues > 2


def test_what_the_messages_contain_is_not_overruled():
    copy = copied(master())
    known = copy.queues()
    assert learn(copy, *((topic, queue, 9_999) for topic, queue in known)) == 0
    assert copy.queues() == known


def test_a_master_without_queues_has_a_table_too():
    copy = copied(master())
    servicer = servicer_of(ServedLog(copy.log, opening=""))
    request = pb.ImportMetadataRequest(generation=copy.log.generation, appended_offset=copy.end())
    assert asyncio.run(servicer.ImportMetadata(request, None)).learned_queues == 0


def test_a_table_for_an_end_that_is_not_reached_yet_is_for_later():
    copy = copied(master())
    with pytest.raises(NotWritableError) as raised:
        learn(copy, GONE, end=copy.end() + 1)
    assert raised.value.fields["reason"] == "behind"
    assert ("gone", 2) not in copy.queues()


def test_a_table_of_another_generation_is_refused():
    copy = copied(master())
    with pytest.raises(NotWritableError) as raised:
        copy.log.slave_data.learn_queues(copy.log.generation + 1, copy.end(), [GONE], more=False)
    assert raised.value.fields["reason"] == "generation"


def test_a_master_takes_no_table():
    with pytest.raises(NotWritableError) as raised:
        learn(master(), GONE)
    assert raised.value.fields["reason"] == "role"


@pytest.mark.parametrize(
    "row", [("", 0, 1), ("t", -1, 1), ("t", 1 << 31, 1), ("t", 0, -1), ("t" * 40_000, 0, 1)]
)
def test_what_can_be_no_queue_refuses_the_whole_table(row):
    copy = copied(master())
    with pytest.raises(InvalidRequestError):
        learn(copy, GONE, row)
    assert ("gone", 2) not in copy.queues()


def test_what_was_learned_survives_a_kill_once_the_snapshot_is_due():
    copy = copied(master())
    copy.pass_time(60_000, ticks=3)
    learn(copy, GONE)
    copy.pass_time(60_000, ticks=3)
    copy.kill()
    copy.start()
    assert copy.queues()["gone", 2] == 70


def test_followers_are_sent_away_to_look_at_the_table_again():
    copy = copied(master())
    listener = Listener(copy)
    listener.listen()
    learn(copy)
    assert not listener.session.ended
    learn(copy, GONE)
    assert listener.session.ended
