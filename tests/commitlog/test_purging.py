"""Minimum offsets that a purge has raised: kept, never lowered, and never above a queue's end."""

import pytest
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.write.topic_table import TopicConfig

from stratamq.errors import InvalidRequestError, NotFoundError, NotWritableError, StrataError
from stratamq.files.simulated import keep_nothing
from stratamq.formats.json_files import parse_json
from stratamq.formats.log_state import Role
from tests.support.disks import write_file
from tests.support.logs import Store

PATH = "config/topics.json"


def purge(store: Store, topic: str, **minimums: int) -> StrataError | None:
    """By queue: `q0=3`. The answer, once the table is saved."""
    answers: list[StrataError | None] = []
    assert store.log is not None
    store.log.topic_changes.purge(
        topic, {int(name[1:]): n for name, n in minimums.items()}, answers.append
    )
    store.settle()
    if answers == [None]:
        store.log.upkeep.save_topics(answers.append)
        store.settle()
    return answers[-1]


def minimums(store: Store, topic: str = "orders") -> dict[int, int]:
    assert store.log is not None
    return dict(store.log.topics.get(topic).minimums)


@pytest.fixture
def store() -> Store:
    made = Store()
    made.start()
    for _ in range(5):
        made.put(queue_id=0)
    made.put(queue_id=1)
    return made


def test_a_minimum_is_kept_by_kills_changes_and_stops(store):
    assert purge(store, "orders", q0=3) is None
    store.power_loss()
    store.start()
    assert minimums(store) == {0: 3}
    store.log.topics.put(TopicConfig("orders", 7, 7))
    store.restart()
    assert minimums(store) == {0: 3}
    assert store.put(queue_id=0).queue_offset == 5


def test_a_minimum_is_never_lowered_and_other_queues_keep_theirs(store):
    purge(store, "orders", q0=3)
    assert purge(store, "orders", q0=1, q1=1) is None
    assert minimums(store) == {0: 3, 1: 1}


def test_rocketmqs_file_has_one_member_more(store):
    purge(store, "orders", q0=3)
    store.stop()
    entry = parse_json(store.disk.contents(PATH))["topicConfigTable"]["orders"]
    assert entry["stratamqMinimumOffsets"] == {"0": 3}
    assert (entry["topicName"], entry["perm"], entry["readQueueNums"]) == ("orders", 6, 4)


@pytest.mark.parametrize("offset", [-1, 6, 1 << 60])
def test_a_minimum_beyond_the_queues_end_is_refused(store, offset):
    assert isinstance(purge(store, "orders", q0=offset, q1=1), InvalidRequestError)
    assert minimums(store) == {}


def test_a_topic_that_is_not_known_is_refused(store):
    assert isinstance(purge(store, "nothing", q0=0), NotFoundError)


def test_a_slave_is_refused_its_own_purge(store):
    answers: list[object] = []
    store.log.set_role(RoleChange(Role.SLAVE), answers.append)
    store.settle()
    assert answers == [None]
    assert isinstance(purge(store, "orders", q0=1), NotWritableError)
    assert minimums(store) == {}


def test_what_a_purge_hides_is_flushed_before_it():
    store = Store(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=10_000)
    store.start()
    store.put(queue_id=0)
    assert store.log.status().flushed_offset < store.end()
    assert purge(store, "orders", q0=1) is None
    store.power_loss(keep_nothing)
    store.start()
    assert minimums(store) == {0: 1}
    assert store.put(queue_id=0).queue_offset == 1


def test_a_log_that_lost_its_end_hides_no_message_that_comes_later(store):
    purge(store, "orders", q0=5)
    store.log.topics.limit_minimums({("orders", 0): 4})
    assert minimums(store) == {0: 4}
    store.restart()
    assert minimums(store) == {0: 4}


def test_a_start_limits_minimums_to_what_the_log_holds(store):
    purge(store, "orders", q0=5)
    document = store.disk.contents(PATH).replace(b'"0": 5', b'"0": 9')
    assert document != store.disk.contents(PATH)
    store.stop()
    store.disk.files().unlink(PATH)
    write_file(store.disk.files(), PATH, document)
    store.start()
    assert minimums(store) == {0: 5}
    store.put(queue_id=0)
    store.power_loss()
    store.start()
    assert minimums(store) == {0: 5}


def test_a_promotion_limits_minimums_to_what_the_log_holds(store):
    answers: list[object] = []
    store.log.set_role(RoleChange(Role.SLAVE), answers.append)
    store.settle()
    document = b'{"topicConfigTable": {"orders": {"stratamqMinimumOffsets": {"0": 9}}}}'
    store.log.topics.import_json(document, {("orders", 0): 9})
    store.log.set_role(RoleChange(Role.ASYNC_MASTER), answers.append)
    store.settle()
    assert answers == [None, None]
    assert minimums(store) == {0: 5}


def test_a_copy_takes_no_minimum_that_it_does_not_reach(store):
    purge(store, "orders", q0=5)
    document, _ = store.log.topics.export_changes()
    copy = Store()
    copy.start()
    for _ in range(4):
        copy.put(queue_id=0)
    with pytest.raises(NotWritableError) as refused:
        copy.log.topics.import_json(document, copy.queues())
    assert refused.value.fields["reason"] == "behind"
    assert minimums(copy) == {}
    copy.put(queue_id=0)
    copy.log.topics.import_json(document, copy.queues())
    assert minimums(copy) == {0: 5}
