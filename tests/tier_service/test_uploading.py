"""The service beside a real log: what is confirmed comes into the tier, once, whatever dies."""

import pytest

from stratamq.client import Client, Message, connect
from stratamq.files.real import RealFiles
from stratamq.tier.consumer_offsets import load_consumer_offsets
from stratamq.tier.driver.posix import PosixStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.manifests import load_manifests
from stratamq.tier.reading.verify import queues_of, verify_queue
from tests.support.brokers import Broker
from tests.support.storages import no_pause
from tests.support.waiting import until, until_dispatched

ROOMS = ("commitlog", "dispatcher", "tier")


def settings(tmp_path, *more: str) -> tuple[str, ...]:
    return (
        "commitlog.segment_bytes=1048576",
        "commitlog.followers=dispatcher",
        "dispatcher.queue_file_bytes=20000",
        f"tier.target={tmp_path / 'tier'}",
        "tier.scan_interval_ms=50",
        "tier.batch_wait_ms=100",
        "tier.record_segment_bytes=200000",
        *more,
    )


class Tier:
    """What is in the storage, seen without the service."""

    def __init__(self, tmp_path) -> None:
        self._storage = PosixStorage(RealFiles(tmp_path / "tier"), no_pause)

    def messages(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Queue offsets [first, end) by queue."""
        places = run(queues_of("DefaultCluster", "broker-a"), self._storage)
        return {
            (one.topic, one.queue_id): (one.minimum, one.end_offset)
            for one in run(load_manifests(places), self._storage)
        }

    def faults(self) -> list[str]:
        places = run(queues_of("DefaultCluster", "broker-a"), self._storage)
        return [
            fault for place in places for fault in run(verify_queue(place), self._storage).faults
        ]


def send(client: Client, first: int, count: int, size: int = 200) -> None:
    with client.producer() as producer:
        for number in range(first, first + count):
            body = b"%08d" % number + bytes(size)
            producer.send_message(Message("t", body, keys=[f"k{number}"], queue_id=number % 4))


def ends(tier: Tier) -> dict[tuple[str, int], int]:
    return {key: end for key, (_, end) in tier.messages().items()}


ALL = {("t", queue): 250 for queue in range(4)}


@pytest.fixture
def tier(tmp_path):
    return Tier(tmp_path)


def test_everything_confirmed_comes_into_the_tier(tmp_path, tier):
    with Broker(tmp_path / "store", tmp_path / "logs", settings(tmp_path)) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            send(client, 0, 1000)
            until(lambda: ends(tier) == ALL, "all messages are in the tier")
            follower = {one.name: one for one in client.log_state().followers}["tier"]
            assert follower.durable_offset <= client.log_state().appended_offset
            until(
                lambda: (
                    {one.name: one for one in client.log_state().followers}["tier"].durable_offset
                    == client.log_state().appended_offset
                ),
                "the log knows what is in the tier",
            )
    assert tier.faults() == []


def test_a_service_that_is_killed_again_and_again_uploads_everything_once(tmp_path, tier):
    with Broker(tmp_path / "store", tmp_path / "logs", settings(tmp_path)) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            for round_number in range(5):
                send(client, round_number * 200, 200)
                broker.kill("tier")
                broker.start(["tier"])
            until(lambda: ends(tier) == ALL, "all messages are in the tier")
    assert tier.faults() == []


def test_a_restarted_log_continues_in_the_same_tier(tmp_path, tier):
    with Broker(tmp_path / "store", tmp_path / "logs", settings(tmp_path)) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            send(client, 0, 400)
        broker.kill("commitlog")
        broker.start(["commitlog"])
        with connect(broker.root, retry_timeout_s=60) as client:
            send(client, 400, 600)
            until(lambda: ends(tier) == ALL, "all messages are in the tier")
    assert tier.faults() == []


def test_consumer_offsets_are_in_the_tier_also_after_the_dispatcher_was_started_anew(tmp_path):
    given = settings(tmp_path, "tier.consumer_offsets_interval_ms=50")
    storage = PosixStorage(RealFiles(tmp_path / "tier"), no_pause)

    def kept() -> dict[str, dict[str, int]]:
        return run(load_consumer_offsets("DefaultCluster", "broker-a"), storage)

    with Broker(tmp_path / "store", tmp_path / "logs", given) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            send(client, 0, 40)
            until_dispatched(client)
            client.commit_offsets("billing", {("t", 0): 3, ("t", 1): 4})
            until(lambda: kept() == {"t@billing": {"0": 3, "1": 4}}, "they are kept")
            broker.kill("dispatcher")
            broker.start(["dispatcher"])
            client.commit_offsets("billing", {("t", 0): 7})
            known = {
                str(queue): at for (_, queue), at in client.committed_offsets("billing").items()
            }
            until(lambda: kept() == {"t@billing": known}, "they are what the dispatcher has")
            client.admin.delete_group("billing")
            until(lambda: not any(kept().values()), "nothing is left")


def test_what_waits_for_a_tier_that_takes_nothing_shows_as_lag(tmp_path, tier):
    with Broker(tmp_path / "store", tmp_path / "logs", settings(tmp_path)) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            send(client, 0, 100)
            until(lambda: sum(ends(tier).values()) == 100, "all messages are in the tier")
            until(lambda: client.admin.tier_state().lag_ms == 0, "nothing waits")
            # A file in the place of the topic's folder: no commit succeeds.
            (folder,) = (tmp_path / "tier").glob("*/broker-a")
            (folder / "u").touch()
            for number in range(10):
                client.send_message(Message("u", b"%d" % number))
            until(lambda: client.admin.tier_state().lag_ms > 2_000, "the lag grows")
            until(lambda: client.admin.tier_state().last_failure, "the failure is reported")
            (folder / "u").unlink()
            until(lambda: client.admin.tier_state().lag_ms == 0, "nothing waits")
