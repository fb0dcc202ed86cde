"""`dispatcher.tier_level`: what is read from the tier although the log has it."""

import pytest

from stratamq.client import Client, Message, connect
from stratamq.client.values import Topic
from tests.support.brokers import Broker
from tests.support.waiting import until
from tests.tier_service.test_uploading import Tier, ends, send, settings

ROOMS = ("commitlog", "dispatcher", "tier")
COUNT = 400
SEGMENT = 65_536


def asked(client: Client) -> int:
    """How many fetches the tier has answered."""
    state = client.admin.tier_state()
    return state.cache_hits + state.cache_misses


def running(tmp_path, level: str, *more: str) -> Broker:
    given = settings(tmp_path, f"dispatcher.tier_level={level}", *more)
    return Broker(tmp_path / "store", tmp_path / "logs", given)


def fill(client: Client, tmp_path) -> None:
    send(client, 0, COUNT)
    tier = Tier(tmp_path)
    until(lambda: sum(end for _, end in tier.messages().values()) == COUNT, "all is in the tier")


def knows_the_tier(client: Client) -> None:
    """Until the dispatcher has learned what the tier has."""

    def comes_from_the_tier() -> bool:
        before = asked(client)
        assert client.pull("t", 1, 0).messages
        return asked(client) > before

    until(comes_from_the_tier, "the dispatcher knows what the tier has")


def is_through(client: Client) -> bool:
    """Whether everything of the log that belongs in the tier is there."""
    state = client.admin.tier_state()
    return state.committed_offset >= client.log_state().appended_offset > 0


def all_read(client: Client) -> list[int]:
    return sorted(int(one.body[:8]) for one in client.consume("t"))


def test_force_reads_from_the_tier_what_it_has_and_from_the_log_while_it_is_away(tmp_path):
    with running(tmp_path, "FORCE") as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            fill(client, tmp_path)
            knows_the_tier(client)
            assert all_read(client) == list(range(COUNT))
            broker.kill("tier")
            assert all_read(client) == list(range(COUNT))


@pytest.mark.parametrize("level", ["DISABLE", "NOT_IN_DISK", "NOT_IN_MEM", "0"])
def test_the_other_levels_read_what_is_in_memory_from_the_log(tmp_path, level):
    with running(tmp_path, level) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            fill(client, tmp_path)
            assert all_read(client) == list(range(COUNT))
            assert asked(client) == 0


def test_not_in_mem_reads_from_the_tier_what_is_further_behind_the_end_than_memory_holds(tmp_path):
    hot = ("dispatcher.memory_bytes=100000", "dispatcher.access_message_in_memory_max_ratio=0.5")
    with running(tmp_path, "NOT_IN_MEM", *hot) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            fill(client, tmp_path)
            last = client.send_message(Message("t", b"%08d" % COUNT, queue_id=0)).queue_offset
            knows_the_tier(client)
            until(lambda: is_through(client), "the tier has the last one, too")
            before = asked(client)
            assert client.pull("t", 0, last).messages
            assert asked(client) == before
            assert all_read(client) == list(range(COUNT + 1))
            assert asked(client) > before


@pytest.mark.parametrize("level", ["FORCE", "NOT_IN_DISK"])
def test_messages_of_a_topic_that_was_taken_out_of_the_tier_for_a_while_are_not_passed_over(
    tmp_path, level
):
    without = "tier.topics=others"
    store, logs = tmp_path / "store", tmp_path / "logs"
    given = settings(
        tmp_path,
        f"dispatcher.tier_level={level}",
        f"commitlog.segment_bytes={SEGMENT}",
        "commitlog.release_timeout_ms=0",
    )
    with Broker(store, logs, given) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            fill(client, tmp_path)
            broker.kill("tier")
            with Broker(store, logs, (*given, without)) as leaving_out:
                leaving_out.start(["tier"])
                for number in range(COUNT, 2 * COUNT):
                    body = b"%08d" % number + bytes(200)
                    client.send_message(Message("t", body, queue_id=number % 4))
                until(lambda: is_through(client), "the tier has passed over them")
                client.admin.create_topic(Topic("others"))
                client.send_message(Message("others", b"", queue_id=0))
                has_others = ("others", 0)
                until(lambda: has_others in ends(Tier(tmp_path)), "its progress is stored")
                leaving_out.kill("tier")
            broker.start(["tier"])
            send(client, 2 * COUNT, COUNT)
            until(lambda: ends(Tier(tmp_path))["t", 3] == 3 * COUNT // 4, "the rest is there")
            until(lambda: is_through(client), "all is there")
            if level == "FORCE":
                knows_the_tier(client)
            assert all_read(client) == list(range(3 * COUNT))
            places = {int(one.body[:8]): one.physical_offset for one in client.consume("t")}
            # The log keeps about half of what the tier does not have.
            half = places[COUNT + COUNT // 2]
            below = half - half % SEGMENT
            until(lambda: client.admin.delete_below(below)[0] == below, "segments go")
            lost = {number for number in range(COUNT, 2 * COUNT) if places[number] < below}
            assert 0 < len(lost) < COUNT
            assert all_read(client) == sorted(set(range(3 * COUNT)) - lost)
