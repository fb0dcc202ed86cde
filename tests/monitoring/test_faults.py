"""Real faults of real services: each lets its own alarm fire, and no other one.

What the services answered before and after the fault goes to Prometheus' `promtool`, as if each had
lasted for hours.
"""

import pytest
from stratamq_torture.disks.volume import Volume, failing, no_injection, obstacle
from stratamq_torture.processes.services import DEFAULT_RATIOS

from stratamq.client import Message, connect
from stratamq.errors import StrataError
from stratamq.rpc.rooms import AGENT, COMMITLOG, DISPATCHER, HA, JANITOR, TIER
from tests.agent.conftest import etcd  # noqa: F401 - a fixture
from tests.agent.members import Members
from tests.monitoring.promtool import ENVIRONMENT, alarms, needs_promtool
from tests.monitoring.scraping import Scraped, metric
from tests.support.brokers import Broker
from tests.support.freezing import freeze, thaw
from tests.support.waiting import until

pytestmark = needs_promtool


def fired(directory, scraped: Scraped) -> set[str]:
    return alarms(directory / "rules", scraped.series())


def send(broker: Broker, count: int = 20) -> None:
    with connect(broker.root, timeout_s=60, retry_timeout_s=60) as client:
        for number in range(count):
            client.send("t", b"%d" % number)


# --- the disk ---


@pytest.mark.skipif(bool(obstacle()), reason=f"a volume of its own {obstacle()}")
def test_a_full_volume_has_one_alarm_also_when_the_janitor_can_delete_nothing(tmp_path):
    rooms, scraped = (COMMITLOG, DISPATCHER, JANITOR), Scraped()
    settings = (*DEFAULT_RATIOS, "commitlog.segment_bytes=1048576", "janitor.interval_ms=200")
    with (
        Volume(tmp_path, 64 << 20) as disk,
        Broker(disk.path / "store", tmp_path / "logs", settings) as broker,
    ):
        broker.start(rooms)
        send(broker)
        until(lambda: metric(broker, JANITOR, "janitor_enabled") == 1, "the janitor has looked")
        scraped.before({"a": broker}, rooms)
        disk.fill(0.95)
        until(lambda: metric(broker, COMMITLOG, "commitlog_writable") == 0, "nothing is taken")
        until(lambda: metric(broker, JANITOR, "janitor_alarm") == 1, "nothing may be deleted")
        scraped.after({"a": broker}, rooms)
        assert fired(tmp_path, scraped) == {"StrataMQDiskFull"}
        # Less than at first, and too much for messages to be taken again: the alarm continues.
        full_ratio = metric(broker, COMMITLOG, "commitlog_disk_used_ratio")
        disk.shrink_filler(0.89)
        until(
            lambda: metric(broker, COMMITLOG, "commitlog_disk_used_ratio") < full_ratio - 0.03,
            "the log has looked",
        )
        assert metric(broker, COMMITLOG, "commitlog_writable") == 0
        scraped.after({"a": broker}, rooms)
        assert fired(tmp_path, scraped) == {"StrataMQDiskFull"}
        disk.free()
        until(lambda: metric(broker, COMMITLOG, "commitlog_writable") == 1, "it is taken again")
        scraped.after({"a": broker}, rooms)
        assert fired(tmp_path, scraped) == set()


@pytest.mark.skipif(bool(no_injection()), reason=f"a flush that fails {no_injection()}")
def test_a_failed_flush_has_one_alarm(tmp_path):
    rooms, scraped = (COMMITLOG, DISPATCHER), Scraped()
    with Broker(tmp_path / "store", tmp_path / "logs") as broker:
        broker.start(rooms)
        send(broker)
        scraped.before({"a": broker}, rooms)
        with (
            failing(broker.pid(COMMITLOG), "fdatasync", "EIO", tmp_path) as fault,
            connect(broker.root, timeout_s=60) as client,
        ):
            with pytest.raises(StrataError):
                client.send("t", b"not durable")
            assert fault.has_struck()
        until(lambda: metric(broker, COMMITLOG, "commitlog_flush_failed") == 1, "it is noticed")
        until(lambda: metric(broker, COMMITLOG, "service_ready") == 0, "it is not ready")
        scraped.after({"a": broker}, rooms)
        assert fired(tmp_path, scraped) - ENVIRONMENT == {"StrataMQFlushFailed"}


# --- the tier ---


def test_a_storage_that_is_gone_has_the_tiers_alarm(tmp_path):
    rooms, scraped = (COMMITLOG, DISPATCHER, TIER), Scraped()
    storage = tmp_path / "tier"
    settings = (f"tier.target={storage}", "tier.scan_interval_ms=50", "tier.batch_wait_ms=100")
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start(rooms)
        send(broker)
        until(lambda: metric(broker, TIER, "tier_committed_messages") == 20, "it is in the tier")
        scraped.before({"a": broker}, rooms)
        storage.rename(tmp_path / "elsewhere")
        storage.write_bytes(b"a file in the place of the directory")
        send(broker)
        until(lambda: metric(broker, TIER, "tier_writing") == 0, "nothing is written")
        scraped.after({"a": broker}, rooms)
        assert fired(tmp_path, scraped) - ENVIRONMENT == {"StrataMQTierFails"}


# --- the agents ---


@pytest.fixture
def members(tmp_path, etcd):  # noqa: F811 - the fixture above
    started = Members(tmp_path, etcd, "SYNC_MASTER").start()
    yield started
    started.close()


AGENT_ROOMS = (COMMITLOG, HA, AGENT)


def test_an_election_store_that_does_not_answer_has_its_alarm(tmp_path, members):
    scraped = Scraped()
    agents_see(members, "agent_has_leader", 1)
    scraped.before(members.brokers, AGENT_ROOMS)
    freeze(members.etcd.pid)
    agents_see(members, "agent_store_answers", 0)
    with members.client() as client:
        assert client.send_message(Message("t", b"x")).status.name == "PUT_OK"
    agents_see(members, "agent_has_leader", 0)
    scraped.after(members.brokers, AGENT_ROOMS)
    thaw(members.etcd.pid)
    assert fired(tmp_path, scraped) - ENVIRONMENT == {"StrataMQElectionStoreGone"}
    agents_see(members, "agent_store_answers", 1)
    agents_see(members, "agent_has_leader", 1)
    scraped.after(members.brokers, AGENT_ROOMS)
    assert fired(tmp_path, scraped) - ENVIRONMENT == set()


def test_a_cluster_whose_leader_is_not_replaced_has_its_alarm(tmp_path, members):
    scraped = Scraped()
    agents_see(members, "agent_has_leader", 1)
    with connect(members.brokers["a"].root, timeout_s=60) as client:
        client.admin.set_failover_paused(True)
    scraped.before(members.brokers, AGENT_ROOMS)
    members.brokers["a"].kill(AGENT)
    agents_see(members, "agent_has_leader", 0, of=("b", "c"))
    scraped.after(members.brokers, AGENT_ROOMS)
    # The process that is gone has its own.
    assert fired(tmp_path, scraped) - ENVIRONMENT == {"StrataMQNoLeader", "StrataMQServiceDown"}


def agents_see(members: Members, name: str, value: float, of=("a", "b", "c")) -> None:
    def seen() -> bool:
        return all(metric(members.brokers[one], AGENT, name) == value for one in of)

    until(seen, f"{name} is {value} at {of}")
