"""A tier that was put back to an older copy: no message is passed over, and it is said."""

import errno
import shutil
from itertools import count as counted

import pytest

from stratamq.cli import __main__ as command_line
from stratamq.cli.tier_mount import mount_settings
from stratamq.client import Client, Message, connect
from stratamq.errors import LostMessagesError
from tests.support.brokers import Broker
from tests.support.waiting import until
from tests.tier_service.test_levels import is_through
from tests.tier_service.test_uploading import Tier, settings

ROOMS = ("commitlog", "dispatcher", "tier")
SEGMENT = 65_536
QUEUE = "t", 0


def given(tmp_path, *more: str) -> tuple[str, ...]:
    deleting = f"commitlog.segment_bytes={SEGMENT}", "commitlog.release_timeout_ms=0"
    return settings(tmp_path, *deleting, "tier.retention_interval_ms=500", *more)


def send(client: Client, first: int, count: int, queue_id: int = 0) -> list[int]:
    """Their places in the log."""
    results = [
        client.send_message(Message("t", b"%08d" % number + bytes(1_000), queue_id=queue_id))
        for number in range(first, first + count)
    ]
    return [one.physical_offset for one in results]


def uploaded(client: Client) -> None:
    """Everything, and nothing more is written until the next message."""

    def is_known() -> bool:
        (tier,) = (one for one in client.log_state().followers if one.name == "tier")
        return tier.durable_offset >= client.log_state().appended_offset

    until(lambda: is_through(client) and is_known(), "all is in the tier, and its progress says so")


def copy(tmp_path, name: str = "tier", to: str = "older") -> None:
    shutil.copytree(tmp_path / name, tmp_path / to, ignore=shutil.ignore_patterns("tmp"))


def delete(client: Client, below: int) -> None:
    """Segments of the log, once the tier has what is in them."""
    below -= below % SEGMENT
    until(lambda: client.admin.delete_below(below)[0] == below, "segments go")


def bodies(client: Client, *, first: int = 0) -> list[int]:
    return [int(one.body[:8]) for one in client.consume("t", queues=[0], offset=first)]


def put_back(tmp_path, name: str) -> None:
    """A service that writes meanwhile makes the directory anew: that one goes aside as well."""
    copy(tmp_path, name, "fresh")
    for number in counted():
        (tmp_path / "tier").rename(tmp_path / f"aside-{number}")
        try:
            (tmp_path / "fresh").rename(tmp_path / "tier")
        except OSError as error:
            assert error.errno == errno.ENOTEMPTY
        else:
            return


def filled(client: Client, tmp_path) -> int:
    """200 messages, of which `older` is a copy, and 300 more; the log has the last of them, from
    which offset on."""
    send(client, 0, 200)
    uploaded(client)
    copy(tmp_path)
    places = send(client, 200, 300)
    uploaded(client)
    delete(client, client.log_state().appended_offset)
    assert bodies(client) == list(range(500)), "the tier has what the log has no more"
    minimum = client.log_state().minimum_offset
    return 200 + sum(place < minimum for place in places)


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", given(tmp_path)) as broker:
        broker.start(ROOMS)
        yield broker


def lost(client: Client) -> int:
    return client.admin.tier_state().lost_messages


@pytest.mark.parametrize("meanwhile", ["stopped", "running"])
def test_what_a_tier_that_was_put_back_misses_is_lost_and_not_passed_over(
    broker, tmp_path, meanwhile
):
    with connect(broker.root, retry_timeout_s=60) as client:
        begins = filled(client, tmp_path)
        assert 200 < begins < 500
        if meanwhile == "stopped":
            broker.kill("tier")
        put_back(tmp_path, "older")
        if meanwhile == "stopped":
            broker.start(["tier"])
        else:
            send(client, 500, 1)
        until(lambda: lost(client) == begins - 200, "what is lost is counted")
        state = client.admin.tier_state()
        assert state.put_backs == 1
        assert f"offsets 200 to {begins}" in state.lost_example
        for offset in (200, 250, begins - 1):
            with pytest.raises(LostMessagesError) as found:
                client.pull("t", 0, offset)
            assert (found.value.first, found.value.end) == (offset, begins)
        read = []
        with pytest.raises(
            LostMessagesError, match=f"200 to {begins} are lost.*from offset {begins}"
        ):
            for one in client.consume("t", queues=[0]):
                read.append(int(one.body[:8]))
        assert read == list(range(200))
        end = 500 if meanwhile == "stopped" else 501
        assert bodies(client, first=begins) == list(range(begins, end))
        uploaded(client)
        assert Tier(tmp_path).messages()[QUEUE] == (0, end)
        (fault,) = Tier(tmp_path).faults()
        assert f"offsets 200 to {begins} are lost" in fault


def manifest_of(tmp_path, name: str = "tier"):
    (found,) = (tmp_path / name).glob("*/broker-a/t/0/stratamq-manifest.json")
    return found


@pytest.mark.parametrize("what", ["tier", "manifest", "progress"])
def test_what_the_log_still_has_is_uploaded_again(broker, tmp_path, what):
    with connect(broker.root, retry_timeout_s=60) as client:
        send(client, 0, 200)
        uploaded(client)
        copy(tmp_path)
        send(client, 200, 300)
        uploaded(client)
        broker.kill("tier")
        if what == "tier":
            put_back(tmp_path, "older")
        elif what == "manifest":
            shutil.copy(manifest_of(tmp_path, "older"), manifest_of(tmp_path))
        else:
            name = "*/broker-a/stratamq-progress.json"
            (older,), (now,) = ((tmp_path / one).glob(name) for one in ("older", "tier"))
            shutil.copy(older, now)
        broker.start(["tier"])
        until(lambda: Tier(tmp_path).messages()[QUEUE] == (0, 500), "all is there again")
        uploaded(client)
        delete(client, client.log_state().appended_offset)
        assert bodies(client) == list(range(500))
        assert lost(client) == 0
        assert client.admin.tier_state().put_backs == 1
    assert Tier(tmp_path).faults() == []


@pytest.mark.parametrize("what", ["gone", "older"])
def test_a_manifest_that_is_gone_or_older_alone_is_missed(broker, tmp_path, what, capsys):
    with connect(broker.root, retry_timeout_s=60) as client:
        begins = filled(client, tmp_path)
        broker.kill("tier")
        if what == "gone":
            manifest_of(tmp_path).unlink()
        else:
            shutil.copy(manifest_of(tmp_path, "older"), manifest_of(tmp_path))
        verify = ["tier", "verify", str(tmp_path / "tier"), "-o", "json"]
        assert command_line.run(verify) == (what == "gone")
        assert ("the manifest is gone" in capsys.readouterr().out) == (what == "gone")
        broker.start(["tier"])
        first = 0 if what == "gone" else 200
        until(lambda: lost(client) == begins - first, "what is lost is counted")
        with pytest.raises(LostMessagesError):
            client.pull("t", 0, 250)
        assert client.queues("t")[0].min_offset == 0, "a reader from the beginning is told"
        assert bodies(client, first=begins) == list(range(begins, 500))
    for command in ("verify", "status"):
        assert command_line.run(["tier", command, str(tmp_path / "tier"), "-o", "json"]) == 1
        assert "are lost" in "".join(capsys.readouterr())


def test_a_manifest_that_is_put_back_beside_its_writer_is_seen_with_the_next_message(
    broker, tmp_path
):
    with connect(broker.root, retry_timeout_s=60) as client:
        begins = filled(client, tmp_path)
        shutil.copy(manifest_of(tmp_path, "older"), manifest_of(tmp_path))
        send(client, 500, 1)
        until(lambda: lost(client) == begins - 200, "what is lost is counted")
        assert client.admin.tier_state().put_backs == 1
        uploaded(client)
        assert bodies(client, first=begins) == list(range(begins, 501))


def test_what_is_lost_is_given_up_by_a_purge(broker, tmp_path):
    with connect(broker.root, retry_timeout_s=60) as client:
        begins = filled(client, tmp_path)
        put_back(tmp_path, "older")
        send(client, 500, 1)
        until(lambda: lost(client) == begins - 200, "what is lost is counted")
        client.admin.purge_topic("t", client.admin.plan_purge("t", begins))
        until(lambda: lost(client) == 0, "the gap has left the tier")
        assert bodies(client) == list(range(begins, 501))


def test_a_mounted_tier_says_what_is_lost(broker, tmp_path):
    with connect(broker.root, retry_timeout_s=60) as client:
        begins = filled(client, tmp_path)
        put_back(tmp_path, "older")
        send(client, 500, 1)
        until(lambda: lost(client) == begins - 200, "what is lost is counted")
        uploaded(client)
    broker.stop()
    mounted = mount_settings(str(tmp_path / "tier"), "DefaultCluster", "broker-a")
    with Broker(tmp_path / "mount", tmp_path / "mount-logs", mounted) as reader:
        reader.start((*ROOMS, "index"))
        with connect(reader.root, retry_timeout_s=60) as client:
            with pytest.raises(LostMessagesError):
                list(client.consume("t"))
            assert bodies(client, first=begins) == list(range(begins, 501))
