"""Clients of brokers of different names: their topics' queues are read and written as one."""

import asyncio
import contextlib
import logging
import os

import pytest

from stratamq.client import EARLIEST, GroupReset, Message, Topic, connect_async
from stratamq.errors import InvalidRequestError, NotFoundError, UnavailableError
from tests.support.brokers import COMMITLOG, DISPATCHER
from tests.support.freezing import freeze, thaw
from tests.support.shards import Shards
from tests.support.waiting import until

DEADLINE_S = 100.0


@pytest.fixture(scope="module")
def shards(kind, tmp_path_factory):
    with Shards(tmp_path_factory.mktemp("shards")) as both:
        yield both


@pytest.fixture
def own(tmp_path):
    """Two brokers that a test may kill."""
    with Shards(tmp_path) as both:
        yield both


@pytest.fixture
def client(shards, opened):
    with opened(shards.address, retry_timeout_s=DEADLINE_S) as client:
        yield client


def bodies(messages) -> list[bytes]:
    return [message.body for message in messages]


def created(client, name: str, queues: int = 2) -> str:
    client.admin.create_topic(Topic(name, queues, queues))
    return name


def places(messages) -> set[tuple[str, int]]:
    return {(one.broker, one.queue_id) for one in messages}


ALL = {("a", 0), ("a", 1), ("b", 0), ("b", 1)}

# --- topics ---


def test_a_topic_is_created_and_altered_at_all_brokers_and_listed_by_each(client, shards, opened):
    created(client, "everywhere", 3)
    listed = [(one.name, one.broker, one.read_queue_count) for one in client.topics("everywhere")]
    assert listed == [("everywhere", "a", 3), ("everywhere", "b", 3)]
    with pytest.raises(InvalidRequestError, match="at a, b"):
        client.admin.create_topic(Topic("everywhere"))
    client.admin.alter_topic("everywhere", permission=4)
    assert [one.permission for one in client.topics("everywhere")] == [4, 4]
    with pytest.raises(NotFoundError):
        client.admin.alter_topic("nowhere", permission=4)
    with opened(shards.address, broker="b") as b:
        b.admin.create_topic(Topic("alone"))
    assert [one.broker for one in client.topics("alone")] == ["b"]
    client.admin.create_topic(Topic("alone"), if_not_exists=True)
    assert [one.broker for one in client.topics("alone")] == ["a", "b"]


def test_a_topic_is_deleted_at_all_brokers(client):
    created(client, "passing")
    for number in range(8):
        client.send("passing", b"%d" % number)
    client.admin.delete_topic("passing")
    assert client.topics("passing") == []
    with pytest.raises(NotFoundError):
        client.admin.delete_topic("passing")


def test_what_is_of_one_broker_names_the_option_that_chooses_it(client, shards, opened):
    for call in (
        lambda one: one.log_state(),
        lambda one: one.pull("t", 0, 0),
        lambda one: one.committed_offsets("g"),
        lambda one: one.admin.trust_clock(),
    ):
        with pytest.raises(InvalidRequestError, match=r"\(a, b\).*broker=NAME.*--broker NAME"):
            call(client)
    for name in ("a", "b"):
        with opened(shards.address, broker=name) as chosen:
            assert chosen.log_state().broker_name == name
    with (
        opened(shards.address, broker="c") as none,
        pytest.raises(InvalidRequestError, match="a, b"),
    ):
        none.log_state()


# --- storing ---


def test_messages_take_all_queues_of_all_brokers_in_turn(client):
    created(client, "turns")
    results = [client.send("turns", b"%d" % number) for number in range(8)]
    assert {(one.broker, one.queue_id) for one in results} == ALL
    assert sum(one.broker == "a" for one in results) == 4
    stored = client.send_all([Message("turns", b"8"), Message("turns", b"9")])
    assert all(one.broker in ("a", "b") for one in stored)
    assert sorted(bodies(client.consume("turns"))) == [b"%d" % number for number in range(10)]


def test_a_key_keeps_its_broker_and_queue(client, shards, opened):
    created(client, "keyed")
    keys = [f"key{number}" for number in range(20)]
    first = [client.send("keyed", b"1", ordering_key=key) for key in keys]
    assert {(one.broker, one.queue_id) for one in first} == ALL
    with opened(shards.address) as other:
        second = [other.send("keyed", b"2", ordering_key=key) for key in keys]
    places_of = [[(one.broker, one.queue_id) for one in some] for some in (first, second)]
    assert places_of[0] == places_of[1]
    with pytest.raises(InvalidRequestError, match="on several brokers"):
        client.send("keyed", b"3", queue_id=0)


def test_a_message_goes_to_another_broker_when_one_is_down_unless_a_key_chose_it(own, opened):
    with opened(own.address, retry_timeout_s=DEADLINE_S) as client:
        created(client, "t")
        slots = [client.send("t", b"k", ordering_key=f"k{number}").broker for number in range(8)]
        assert set(slots) == {"a", "b"}
    with opened(own.address, timeout_s=DEADLINE_S) as client:
        assert {client.send("t", b"x").broker for _ in range(2)} == {"a", "b"}
        own.kill("b")
        assert {client.send("t", b"x").broker for _ in range(6)} == {"a"}
        for number, broker in enumerate(slots):
            if broker == "a":
                assert client.send("t", b"k", ordering_key=f"k{number}").broker == "a"
            else:
                with pytest.raises(UnavailableError):
                    client.send("t", b"k", ordering_key=f"k{number}")
        with pytest.raises(UnavailableError, match="broker b"):
            client.admin.create_topic(Topic("u"))
        assert [one.name for one in client.topics("u")] == []
        with pytest.raises(UnavailableError, match="nothing was changed: broker b"):
            client.admin.delete_group("g")


def test_a_producer_gives_every_broker_its_share_and_keeps_keys_in_their_queues(client):
    created(client, "produced")
    results = []
    with client.producer(on_result=results.append) as producer:
        deliveries = [producer.send("produced", b"%d" % number) for number in range(400)]
        producer.flush()
        assert {one.result().broker for one in deliveries} == {"a", "b"}
        keyed = [
            [producer.send("produced", b"k", ordering_key=f"k{number}") for _ in range(3)]
            for number in range(12)
        ]
        alone = producer.send_message(Message("produced", b"alone", wait_store_ok=False))
        rows = producer.send_rows("produced", [(b"row", b"")] * 10)
        assert alone.result(DEADLINE_S).broker in ("a", "b")
        assert len({one.result(DEADLINE_S).broker for one in rows}) == 1
        for some in keyed:
            assert len({(one.result().broker, one.result().queue_id) for one in some}) == 1
        assert producer.largest_body_bytes() > 1 << 20
    assert len(results) == 400 + 36 + 1 + 10
    found = list(client.consume("produced"))
    assert len(found) == len(results)
    assert sum(one.broker == "a" for one in found[:400]) > 100
    with client.producer() as producer:
        answer = producer.send("produced", b"s", ordering_key="k1").result(DEADLINE_S)
    assert (answer.broker, answer.queue_id) == (
        keyed[1][0].result().broker,
        keyed[1][0].result().queue_id,
    )


def test_a_producer_passes_over_a_broker_that_is_away(own, opened):
    events: list[object] = []
    with opened(own.address, retry_timeout_s=DEADLINE_S) as client:
        created(client, "t")
        with client.producer(on_interruption=events.append, delivery_timeout_s=100) as producer:
            first = [producer.send("t", b"1") for _ in range(10)]
            assert {one.result(DEADLINE_S).broker for one in first} == {"a", "b"}
            own.kill("b")
            lost = [producer.send("t", b"2") for _ in range(10)]
            until(lambda: producer.send("t", b"3").done is not None and events, "it is noticed")
            assert events[0].fields["broker"] == "b"
            later = [producer.send("t", b"4") for _ in range(10)]
            assert {one.result(DEADLINE_S).broker for one in later} == {"a"}
            own.start_again("b")
            assert {one.result(DEADLINE_S).broker for one in lost} == {"a", "b"}
            until(lambda: producer.send("t", b"5").result(DEADLINE_S).broker == "b", "it is back")
        stored = [one.body for one in client.consume("t")]
    assert [stored.count(body) for body in (b"1", b"2", b"4")] == [10, 10, 10]


def test_what_is_perhaps_stored_goes_to_no_other_broker(own, opened):
    """A message that was sent before its broker froze. One that could not be numbered any more was
    not sent, and goes to the other."""
    with opened(own.address, retry_timeout_s=DEADLINE_S) as patient:
        created(patient, "t", 1)
    with opened(own.address, timeout_s=1.0) as client:

        def in_turn() -> tuple[str, str] | None:
            """None when one was late on a busy machine, and is passed over."""
            try:
                first, second = (client.send("t", b"answered").broker for _ in range(2))
            except UnavailableError:
                return None
            return (first, second) if {first, second} == {"a", "b"} else None

        def unanswered() -> tuple[bytes, str] | None:
            frozen, other = until(in_turn, "both take messages")
            freeze(own[frozen].pid(COMMITLOG))
            body = os.urandom(8)
            try:
                client.send("t", body)
            except UnavailableError as error:
                if error.fields["broker"] == frozen:
                    assert error.fields["perhaps_stored"]
                    return body, other
            finally:
                thaw(own[frozen].pid(COMMITLOG))
            return None

        body, other = until(unanswered, "a message is sent and not answered")
    with opened(own.address, broker=other, retry_timeout_s=DEADLINE_S) as at_other:
        assert body not in bodies(at_other.consume("t"))


def test_with_all_brokers_away_a_message_is_refused_and_nothing_is_stored(own, opened):
    with (
        opened(own.address, retry_timeout_s=DEADLINE_S) as patient,
        opened(own.address, timeout_s=1.0) as client,
    ):
        created(patient, "t", 1)
        for name in ("a", "b"):
            own.kill(name)
        for topic in ("t", "unknown"):
            with pytest.raises(UnavailableError) as refused:
                client.send(topic, b"1")
            assert not refused.value.fields.get("perhaps_stored")


# --- reading ---


def test_a_reader_gives_the_messages_of_all_brokers_with_their_names(client):
    created(client, "read")
    sent = [client.send("read", b"%d" % number, tag="AB"[number % 2]) for number in range(40)]
    with client.consume("read") as reader:
        found = list(reader)
    assert sorted(bodies(found)) == sorted(b"%d" % number for number in range(40))
    assert places(found) == ALL
    by_place = {(one.broker, one.queue_id, one.queue_offset): one.body for one in found}
    for number, one in enumerate(sent):
        assert by_place[one.broker, one.queue_id, one.queue_offset] == b"%d" % number
    assert len(list(client.consume("read", tags="A"))) == 20
    newest = max(one.store_timestamp_ms for one in found)
    assert len(list(client.between("read", 0, newest))) == 40
    with pytest.raises(NotFoundError):
        list(client.consume("not there"))


def test_a_group_continues_at_every_broker_where_it_was(client):
    created(client, "grouped")
    for number in range(12):
        client.send("grouped", b"%d" % number)
    with client.consume("grouped", group="g") as reader:
        first = [next(reader) for _ in range(5)]
        reader.commit()
    with client.consume("grouped", group="g") as reader:
        second = list(reader)
    assert sorted(bodies(first + second)) == sorted(b"%d" % number for number in range(12))
    listed = [one for one in client.groups() if one.group == "g"]
    assert {(one.broker, one.queue_id) for one in listed} == ALL
    assert all(one.lag == 0 for one in listed)
    assert client.topics_of_group("g") == {"grouped"}
    resets = client.admin.plan_group_reset("g", EARLIEST)
    assert isinstance(resets[0], GroupReset)
    assert {(one.broker, one.queue_id, one.offset) for one in resets} == {(*p, 0) for p in ALL}
    client.admin.reset_group("g", resets)
    behind = client.groups("g", with_lag_s=True)
    assert sum(one.lag for one in behind) == 12
    assert all(one.lag_s is not None for one in behind)
    assert len(list(client.consume("grouped", group="g"))) == 12
    assert client.admin.delete_group("g") == 4
    assert not [one for one in client.groups() if one.group == "g"]


def test_a_purge_is_of_every_broker(client):
    created(client, "purged")
    for number in range(12):
        client.send("purged", b"%d" % number)
    purges = client.admin.plan_purge("purged", -1)
    assert {(one.broker, one.queue_id) for one in purges} == ALL
    assert all(one.offset == one.max_offset - 1 for one in purges)
    client.admin.purge_topic("purged", purges)
    until(
        lambda: len(list(client.consume("purged"))) == 4, "every queue begins at its last message"
    )
    assert places(client.consume("purged")) == ALL


def test_a_reader_that_fails_leaves_no_message_out(client):
    created(client, "failing")
    with client.producer() as producer:
        for number in range(200):
            producer.send("failing", b"%d" % number)
    given: list[bytes] = []
    for stop in (1, 7, 30, 55, 90):
        with pytest.raises(ZeroDivisionError), client.consume("failing", group="z") as reader:
            for number, message in enumerate(reader):
                if number == stop:
                    raise ZeroDivisionError  # this one was not processed
                given.append(message.body)
    with client.consume("failing", group="z") as reader:
        many = reader.getmany(3, DEADLINE_S)
        given += bodies(many)
    with client.consume("failing", group="z") as reader:
        given += bodies(reader)
    assert sorted(given) == sorted(b"%d" % number for number in range(200)), "each once"


def test_a_cancelled_wait_loses_no_message(shards, run):
    async def scenario():
        async with connect_async(shards.address, retry_timeout_s=DEADLINE_S) as client:
            await client.admin.create_topic(Topic("cancelled", 2, 2))
            given: list[bytes] = []
            async with client.consume("cancelled", follow=True) as reader:
                sent = 0
                while len(given) < 40:
                    if sent < 40:
                        await client.send("cancelled", b"%d" % sent)
                        sent += 1
                    with contextlib.suppress(TimeoutError):
                        message = await asyncio.wait_for(anext(reader), 0.003)
                        given.append(message.body)
            return given

    assert sorted(run(scenario())) == sorted(b"%d" % number for number in range(40)), "each once"


def test_a_following_reader_is_a_member_at_every_broker_and_can_seek_and_pause(client):
    created(client, "followed")
    options = {"group": "f", "client_id": "me", "follow": True}
    with client.consume("followed", **options) as reader:
        assert reader.poll(0.01) is None
        for number in range(8):
            client.send("followed", b"%d" % number)
        found = [reader.poll(DEADLINE_S) for _ in range(8)]
        assert sorted(bodies(found)) == [b"%d" % number for number in range(8)]
        members = client.group_members("f")
        assert [(one.client_id, one.broker) for one in members] == [("me", "a"), ("me", "b")]
        reader.seek(EARLIEST, queues=[0])
        many = []
        while len(many) < 4:
            many += reader.getmany(100, DEADLINE_S)
        assert places(many) == {("a", 0), ("b", 0)}
        reader.pause()
        client.send("followed", b"8")
        assert reader.poll(0.1) is None
        with pytest.raises(InvalidRequestError, match="paused"):
            next(reader)
        reader.resume()
        assert reader.poll(DEADLINE_S).body == b"8"
        with pytest.raises(InvalidRequestError, match="several brokers"):
            _ = reader.positions


def test_reading_continues_while_a_broker_is_away_and_logs_it(own, opened, caplog):
    events: list[object] = []
    with opened(own.address, retry_timeout_s=DEADLINE_S) as client:
        created(client, "t")
        for number in range(8):
            client.send("t", b"%d" % number)
        options = {"follow": True, "refresh_s": 0.5, "on_interruption": events.append}
        with client.consume("t", **options) as reader:
            assert len({next(reader).body for _ in range(8)}) == 8
            own.kill("b")
            assert until(lambda: reader.poll(0.05) is None and events, "an interruption")
            assert events[0].fields["broker"] == "b"
            with opened(own.address, broker="a") as at_a:
                at_a.send("t", b"from a")
            assert next(reader).body == b"from a"
            own.start_again("b")
            with opened(own.address, broker="b", retry_timeout_s=DEADLINE_S) as at_b:
                at_b.send("t", b"from b")
            found = next(reader)
            assert (found.body, found.broker) == (b"from b", "b")
            assert events[-1] is None, "and its end"


def test_a_broker_whose_name_was_not_known_is_taken_up_when_it_answers(own, opened, caplog):
    with opened(own.address, retry_timeout_s=DEADLINE_S) as client:
        created(client, "t", 1)
    own.kill("b")
    with (
        caplog.at_level(logging.WARNING),
        opened(own.address, timeout_s=DEADLINE_S) as client,
        client.producer() as producer,
        client.consume("t", follow=True, refresh_s=0.3) as reader,
    ):
        assert "a broker is left out" in caplog.text
        assert client.log_state().broker_name == "a"
        assert client.send("t", b"1", queue_id=0).broker == "a"
        assert producer.send("t", b"2").result(DEADLINE_S).broker == "a"
        assert {reader.poll(DEADLINE_S).body for _ in range(2)} == {b"1", b"2"}
        own.start_again("b")
        with opened(own.address, broker="b", retry_timeout_s=DEADLINE_S) as at_b:
            at_b.send("t", b"3")
        found = reader.poll(DEADLINE_S)
        assert (found.body, found.broker) == (b"3", "b")
        assert {client.send("t", b"4").broker for _ in range(4)} == {"a", "b"}
        later = [producer.send("t", b"5") for _ in range(4)]
        assert {one.result(DEADLINE_S).broker for one in later} == {"a", "b"}
        with pytest.raises(InvalidRequestError, match="broker=NAME"):
            client.log_state()


def test_a_frozen_broker_holds_up_no_message_of_the_other(own, opened):
    with opened(own.address, retry_timeout_s=DEADLINE_S, timeout_s=DEADLINE_S) as client:
        created(client, "t", 1)
        sent = [client.send("t", b"%d" % number) for number in range(2)]
        with client.consume("t", follow=True, refresh_s=0.5) as reader:
            assert {next(reader).body for _ in range(2)} == {b"0", b"1"}
            freeze(own["b"].pid(COMMITLOG))
            freeze(own["b"].pid(DISPATCHER))
            with opened(own.address, broker="a") as at_a:
                for number in range(2, 40):
                    at_a.send("t", b"%d" % number)
                    assert next(reader).body == b"%d" % number
            thaw(own["b"].pid(COMMITLOG))
            thaw(own["b"].pid(DISPATCHER))
    assert {one.broker for one in sent} == {"a", "b"}


def test_a_reader_that_does_not_follow_ends_with_what_kept_it_from_a_broker(own, opened, caplog):
    with opened(own.address, retry_timeout_s=DEADLINE_S) as client:
        created(client, "t")
        for number in range(8):
            client.send("t", b"%d" % number)
    with opened(own.address) as client:
        assert len(client.topics("t")) == 2
        own.kill("b")
        given = []
        with (
            caplog.at_level(logging.WARNING),
            pytest.raises(UnavailableError, match="broker b"),
            client.consume("t", retry_timeout_s=0.1) as reader,
        ):
            for message in reader:
                given.append(message.broker)
        assert given == ["a"] * 4
        assert "broker b" in caplog.text
        caplog.clear()
        assert [one.broker for one in client.topics("t")] == ["a"]
        assert "broker b" in caplog.text
