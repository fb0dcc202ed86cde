"""Which broker of several names a message goes to."""

import pytest

from stratamq.client import Topic
from stratamq.client.shard_routes import AWAY_NS, FRESH_NS, ShardRoutes
from stratamq.errors import InvalidRequestError, UnavailableError

BOTH = ["a", "b"]


def routes(a: Topic | None, b: Topic | None) -> ShardRoutes:
    made = ShardRoutes()
    made.learn("t", {"a": a, "b": b}, 0)
    return made


def first(made: ShardRoutes, count: int, now_ns: int = 0) -> list[str]:
    return [made.in_turn("t", BOTH, now_ns)[0] for _ in range(count)]


def test_brokers_take_turns_as_often_as_they_have_queues():
    made = routes(Topic("t", 1, 1), Topic("t", 3, 3))
    assert sorted(first(made, 8)) == ["a"] * 2 + ["b"] * 6
    assert made.in_turn("t", BOTH, 0) in (["a", "b"], ["b", "a"])


def test_a_broker_that_took_nothing_comes_last_for_a_while():
    made = routes(Topic("t"), Topic("t"))
    assert made.away("b", 0)
    assert not made.away("b", 1)
    assert first(made, 4, 1) == ["a"] * 4
    assert made.in_turn("t", BOTH, 1) == ["a", "b"]
    assert set(first(made, 4, AWAY_NS + 1)) == {"a", "b"}
    made.away("b", 0, until_back=True)
    assert set(first(made, 4, 1000 * AWAY_NS)) == {"a"}
    made.back("b")
    assert set(first(made, 4)) == {"a", "b"}


def test_what_cannot_be_written_at_a_broker_goes_to_the_others():
    assert set(first(routes(Topic("t", permission=4), Topic("t")), 4)) == {"b"}
    assert set(first(routes(None, Topic("t")), 4)) == {"b"}
    assert set(first(routes(Topic("t", permission=4), None), 4)) == {"a"}, "it refuses it by name"
    assert set(first(routes(None, None), 4)) == {"a", "b"}, "it is made anywhere"


def test_keys_have_all_slots_of_brokers_that_were_seen_whether_they_answer_or_not():
    made = routes(Topic("t", 2, 2), Topic("t", 1, 1))
    slots = [("a", 0), ("a", 1), ("b", 0)]
    assert made.slots("t", BOTH) == slots
    made.away("b", 0, until_back=True)
    made.learn("t", {"a": Topic("t", 2, 2)}, FRESH_NS)
    assert made.slots("t", BOTH) == slots
    with pytest.raises(UnavailableError, match="those at c are not known"):
        made.slots("t", [*BOTH, "c"])


def test_a_queue_by_its_number_is_of_one_broker():
    made = routes(Topic("t", 2, 2), Topic("t", 1, 1))
    assert made.of_queue("t", 1, BOTH) == "a"
    for queue_id in (0, 2):
        with pytest.raises(InvalidRequestError, match="--broker NAME"):
            made.of_queue("t", queue_id, BOTH)
    assert made.of_queue("t", 9, ["a"]) == "a", "which refuses it"


def test_brokers_are_asked_again_after_a_while_but_not_those_that_are_away():
    made = ShardRoutes()
    assert made.to_ask("t", BOTH, 0) == BOTH
    made.away("b", 0)
    assert made.to_ask("t", BOTH, 0) == ["a"]
    made.learn("t", {"a": Topic("t")}, 0)
    assert made.to_ask("t", BOTH, 1) == []
    assert made.to_ask("t", BOTH, AWAY_NS) == ["b"]
    made.learn("t", {"b": Topic("t")}, AWAY_NS)
    assert made.to_ask("t", BOTH, AWAY_NS + FRESH_NS) == []
    assert made.to_ask("t", BOTH, AWAY_NS + FRESH_NS + 1) == BOTH
