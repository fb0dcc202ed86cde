"""`dispatcher.tier_level`: what is read from the tier although the log has it."""

import pytest

from stratamq.client import Client, connect
from tests.support.brokers import Broker
from tests.support.waiting import until
from tests.tier_service.test_uploading import Tier, send, settings

ROOMS = ("commitlog", "dispatcher", "tier")
COUNT = 400


def asked(client: Client) -> int:
    """How many fetches the tier has answered."""
    state = client.admin.tier_state()
    return state.cache_hits + state.cache_misses


def running(tmp_path, level: str) -> Broker:
    given = settings(tmp_path, f"dispatcher.tier_level={level}")
    return Broker(tmp_path / "store", tmp_path / "logs", given)


def fill(client: Client, tmp_path) -> None:
    send(client, 0, COUNT)
    tier = Tier(tmp_path)
    until(lambda: sum(end for _, end in tier.messages().values()) == COUNT, "all is in the tier")


def all_read(client: Client) -> list[int]:
    return sorted(int(one.body[:8]) for one in client.consume("t"))


def test_force_reads_from_the_tier_what_it_has_and_from_the_log_while_it_is_away(tmp_path):
    with running(tmp_path, "FORCE") as broker:
        broker.start(ROOMS)
        with connect(broker.root, patience_s=60) as client:
            fill(client, tmp_path)

            def comes_from_the_tier() -> bool:
                before = asked(client)
                assert client.pull("t", 1, 0).messages
                return asked(client) > before

            until(comes_from_the_tier, "the dispatcher knows what the tier has")
            assert all_read(client) == list(range(COUNT))
            broker.kill("tier")
            assert all_read(client) == list(range(COUNT))


@pytest.mark.parametrize("level", ["DISABLE", "NOT_IN_DISK", "NOT_IN_MEM", "0"])
def test_the_other_levels_read_what_is_in_memory_from_the_log(tmp_path, level):
    with running(tmp_path, level) as broker:
        broker.start(ROOMS)
        with connect(broker.root, patience_s=60) as client:
            fill(client, tmp_path)
            assert all_read(client) == list(range(COUNT))
            assert asked(client) == 0
