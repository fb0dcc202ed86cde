"""Three shards of three members: `docker compose --profile shards up --build --wait`. A client of
this machine sees one cluster; when a container is lost, no operator has to act."""

from collections import Counter

import pytest

from stratamq.client import Topic
from tests.compose.load import Load
from tests.compose.shard import all_follow, kill, leader_of, others_of
from tests.compose.stack import A, B, C, Stack, until

pytestmark = pytest.mark.compose

SHARDS = {"a": A, "b": B, "c": C}
QUEUES = 4


def leaders(shards: Stack) -> list[str]:
    """Of a, b and c, each with both slaves in step."""
    found = [leader_of(shards, members) for members in SHARDS.values()]
    for leader in found:
        all_follow(shards, leader)
    return found


def topic_of_all(shards: Stack, name: str) -> None:
    with shards.client() as client:
        client.admin.create_topic(Topic(name, QUEUES, QUEUES))


def read_by_group(shards: Stack, topic: str, group: str) -> Counter[str]:
    """How often each unique key is read, from where the group is."""
    with shards.client() as client, client.consume(topic, group=group) as messages:
        return Counter(message.unique_key for message in messages)


def all_is_read_by_one_group(shards: Stack, load: Load) -> None:
    """What was acknowledged over all shards, once; then there is nothing left."""
    assert load.acknowledged
    seen: Counter[str] = Counter()

    def everything() -> bool:
        seen.update(read_by_group(shards, load.topic, "readers"))
        return load.acknowledged <= set(seen)

    until(everything, "every acknowledged message")
    assert not [key for key, times in seen.items() if times > 1]


def test_a_client_of_this_machine_sees_one_cluster_of_three_shards(shards: Stack):
    leaders(shards)
    topic_of_all(shards, "orders")
    with shards.client() as client:
        sent = [client.send("orders", b"%d" % number) for number in range(60)]
        assert {one.broker for one in client.topics("orders")} == set(SHARDS)
        with client.consume("orders", group="one") as messages:
            read = [message.unique_key for message in messages]
        ends = Counter()
        for queue in client.queues("orders"):
            ends[queue.broker] += queue.max_offset
    assert sorted(read) == sorted(one.unique_key for one in sent)
    assert set(ends.values()) == {20}


def test_a_client_in_the_network_sees_the_same_behind_one_name(shards: Stack):
    leaders(shards)
    topic_of_all(shards, "named")
    name = "--address cluster:10911"
    shards.execute("c3", "sh", "-c", f"seq 300 | stratamq produce named {name}")
    output = shards.execute("a2", "sh", "-c", f"stratamq consume named --format '%s\\n' {name}")
    assert sorted(map(int, output.split())) == list(range(1, 301))


@pytest.mark.parametrize("lost", ["leader", "slave", "etcd1"])
def test_a_container_that_dies_under_load_is_started_again_and_nothing_is_lost(
    shards: Stack, lost: str
):
    topic = f"died-{lost}"
    _, leader, _ = leaders(shards)
    container = {"leader": leader, "slave": others_of(leader)[0]}.get(lost, lost)
    topic_of_all(shards, topic)
    with Load(shards, topic, queues=None) as load:
        load.continues()
        shards.crash(container)
        shards.until_healthy(container)
        leaders(shards)
        load.continues()
    all_is_read_by_one_group(shards, load)


def test_a_leader_that_stays_away_is_replaced_while_the_other_shards_continue(shards: Stack):
    a, old, c = leaders(shards)
    topic_of_all(shards, "away")
    with Load(shards, "away", queues=None) as load:
        load.continues()
        end = kill(shards, [old])
        load.continues()
        try:
            new = leader_of(shards, others_of(old))
            load.continues()
        finally:
            end()
        assert leaders(shards) == [a, new, c]
    all_is_read_by_one_group(shards, load)
