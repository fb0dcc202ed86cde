"""Settings of groups in RocketMQ's `config/subscriptionGroup.json`: written for a broker that takes
over, and read where another program wrote it."""

import errno
import random
from types import SimpleNamespace

import pytest
from stratamq_delivery.entries import Configured, Stopped
from stratamq_delivery.rocketmq_files import RocketMQFiles
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.subscription_groups import document_of, settings_of

from stratamq.client import connect
from stratamq.files.simulated import SimulatedClock, SimulatedDisk, SimulatedScheduler
from stratamq.follow.fold import FoldPlace
from stratamq.formats.json_files import format_json, parse_json
from stratamq.formats.store_paths import SUBSCRIPTION_GROUPS_PATH
from tests.delivery.test_sharing import DELIVERY, ROOMS, fill, receive
from tests.support.brokers import Broker
from tests.support.disks import write_file
from tests.support.waiting import json_of, until

TABLE = "subscriptionGroupTable"
DEFAULTS = {"consumeEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1, "brokerId": 0}
ORDERED = Configured(ordered=True, attempts=4)


class Room:
    """The settings of groups on a disk that keeps what was written."""

    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        self.disk = disk or SimulatedDisk()
        self.lanes = SimulatedScheduler(random.Random(0))
        self.clock = SimulatedClock()
        self.followed = FoldPlace()
        self.groups = SharedGroups(self.followed)
        self.appends = SimpleNamespace(is_active=True)
        written = (self.followed, self.disk.files(), self.lanes.worker(), self.clock, 100)
        self.files = RocketMQFiles(dict, self.groups, 17, self.appends, *written)
        self.files.load()
        self.decided = 0

    def fold(self, **settings: Configured | None) -> None:
        """The log has decided so."""
        for group, one in settings.items():
            self.groups.settings.apply(group, Stopped() if one is None else one)
        self.followed.applied += 1

    def tick(self) -> None:
        self.clock.advance_ms(100)
        self.files.tick(self._decided)
        self.lanes.run_until_idle()

    def _decided(self) -> None:
        self.decided += 1

    def flush(self) -> None:
        self.followed.flushed = self.followed.applied
        self.tick()
        self.tick()

    @property
    def table(self) -> dict:
        if self.disk.files().entry(SUBSCRIPTION_GROUPS_PATH) is None:
            return {}
        return parse_json(self.disk.contents(SUBSCRIPTION_GROUPS_PATH))[TABLE]


def rocketmqs(**groups: dict) -> SimulatedDisk:
    disk = SimulatedDisk()
    table = {name: {"groupName": name} | DEFAULTS | entry for name, entry in groups.items()}
    document = {"dataVersion": {"counter": 7}, "forbiddenTable": {"x": {}}, TABLE: table}
    write_file(disk.files(), SUBSCRIPTION_GROUPS_PATH, format_json(document))
    return disk


@pytest.mark.parametrize("is_master", [True, False])
def test_settings_are_in_rocketmqs_file_when_the_log_has_flushed_them(is_master):
    room = Room()
    room.appends.is_active = is_master
    room.tick()
    assert room.table == {}, "nothing is written where no group has settings"
    room.fold(billing=ORDERED, closed=Configured(enabled=False))
    room.tick()
    assert room.table == {}
    room.flush()
    billing, closed = room.table["billing"], room.table["closed"]
    assert billing["groupName"] == "billing"
    assert (billing["consumeMessageOrderly"], billing["retryMaxTimes"]) == (True, 3)
    assert (closed["consumeEnable"], closed["retryMaxTimes"]) == (False, 16)
    assert billing["retryQueueNums"] == 1 and billing["consumeBroadcastEnable"]
    room.fold(billing=None)
    room.flush()
    assert [*room.table] == ["closed"]
    room.fold(closed=None)
    room.files.close(lambda: None)
    assert [*room.table] == ["closed"], "the log has not flushed it"


def test_a_disk_without_room_ends_nothing_and_the_file_is_written_when_there_is_some():
    room = Room()
    room.tick()
    room.disk.fail("write", error=errno.ENOSPC, repeat=True)
    room.fold(billing=ORDERED)
    room.flush()
    assert room.table == {}
    done: list[bool] = []
    room.files.close(lambda: done.append(True))
    room.lanes.run_until_idle()
    assert done == [True], "a stop does not wait for room"
    room.disk.clear_faults()
    room.tick()
    assert [*room.table] == ["billing"]


def test_what_is_not_ours_stays_in_the_file():
    disk = rocketmqs(plain={}, billing={"retryMaxTimes": 2, "brokerId": 3, "attributes": {"a": 1}})
    room = Room(disk)
    room.tick()
    room.fold(billing=ORDERED)
    room.flush()
    document = parse_json(disk.contents(SUBSCRIPTION_GROUPS_PATH))
    assert document["dataVersion"]["counter"] == 8 and document["forbiddenTable"] == {"x": {}}
    billing = document[TABLE]["billing"]
    assert (billing["retryMaxTimes"], billing["brokerId"]) == (3, 3)
    assert billing["attributes"] == {"a": 1}
    assert document[TABLE]["plain"] == {"groupName": "plain"} | DEFAULTS


def test_the_groups_of_another_programs_file_get_settings_once():
    ordered = {"consumeMessageOrderly": True}
    disk = rocketmqs(plain={}, few={"retryMaxTimes": 2}, ordered=ordered, own={"retryMaxTimes": 5})
    room = Room(disk)
    room.fold(own=Configured(attempts=9))
    room.appends.is_active = False
    room.tick()
    assert not room.decided, "a slave decides nothing"
    room.appends.is_active = True
    room.tick()
    settings = room.groups.settings
    assert settings.of("few") == Configured(attempts=3)
    assert settings.of("ordered") == Configured(ordered=True)
    assert settings.of("plain") is None
    assert settings.of("own") == Configured(attempts=9), "what is decided here wins"
    room.flush()
    assert room.decided == 1
    assert room.table["own"]["retryMaxTimes"] == 5, "the file stays until all of it is in the log"
    room.groups.give_up()
    room.tick()
    assert room.decided == 2, "the log may not have them"
    room.fold(few=Configured(attempts=3), ordered=Configured(ordered=True))
    room.tick()
    room.flush()
    assert room.table["own"]["retryMaxTimes"] == 8
    again = Room(disk)
    again.fold(few=Configured(attempts=3), own=Configured(attempts=9))
    again.tick()
    assert not again.decided, "the file is ours now"
    again.flush()
    assert {*again.table} == {"plain", "few", "own"}


@pytest.mark.parametrize(
    ("entry", "settings"),
    [
        (DEFAULTS, None),
        ({}, None),
        ("no entry", None),
        ({"retryMaxTimes": True, "consumeEnable": None}, None),
        ({"retryMaxTimes": "3"}, None),
        ({"consumeEnable": False}, Configured(enabled=False)),
        ({"retryMaxTimes": 0}, Configured(attempts=1)),
        ({"retryMaxTimes": -1}, Configured(attempts=1)),
        ({"retryMaxTimes": 1 << 40}, Configured(attempts=10_000)),
        ({"consumeMessageOrderly": True, "retryMaxTimes": 16}, Configured(ordered=True)),
    ],
)
def test_an_entry_of_rocketmqs(entry, settings):
    assert settings_of("billing", entry) == settings
    assert settings_of("", entry) is None
    assert settings_of("x" * 256, entry) is None


def test_what_is_written_is_read_as_it_was():
    chance = random.Random(7)
    for _ in range(200):
        flags = (chance.random() < 0.5, chance.choice((0, 1, 4, 17, 10_000)), chance.random() < 0.5)
        one = Configured(*flags)
        entry = document_of({}, {"billing": one}, 17, 5)[TABLE]["billing"]
        expected = Configured(one.ordered, 0 if one.attempts == 17 else one.attempts, one.enabled)
        assert (settings_of("billing", entry) or Configured()) == expected


@pytest.mark.parametrize("table", [[], None, {"billing": 3}])
def test_a_file_that_makes_no_sense_changes_nothing(table):
    disk = SimulatedDisk()
    write_file(disk.files(), SUBSCRIPTION_GROUPS_PATH, format_json({TABLE: table}))
    room = Room(disk)
    room.tick()
    assert not room.decided
    room.fold(billing=ORDERED)
    room.flush()
    assert room.table["billing"]["retryMaxTimes"] == 3


def test_on_a_broker_settings_come_from_the_file_and_go_into_it(tmp_path):
    root = tmp_path / "store"
    path = root / SUBSCRIPTION_GROUPS_PATH
    path.parent.mkdir(parents=True)
    entry = {"groupName": "billing", "consumeEnable": False, "retryMaxTimes": 3}
    path.write_bytes(format_json({TABLE: {"billing": entry}}))
    settings = ("delivery.delay_offsets_interval_ms=20",)
    with Broker(root, tmp_path / "logs", settings) as broker:
        broker.start(ROOMS)
        fill(broker, 0, 1)
        with connect(broker.root, retry_timeout_s=60) as client:

            def found():
                some = client.group_settings("billing")
                return [(one.consume_enabled, one.retries) for one in some] == [(False, 3)]

            until(found, "the file is read")
            client.admin.alter_group("billing", consume_enabled=True, retries=5)
            client.admin.create_group("ordered", ordered=True)
        assert len(receive(broker)) == 1

        def written() -> dict:
            table = json_of(path).get(TABLE, {})
            return {
                name: (one.get("consumeEnable"), one.get("retryMaxTimes"))
                for name, one in table.items()
            }

        until(lambda: written() == {"billing": (True, 5), "ordered": (True, 16)}, "it is written")
        broker.kill(DELIVERY)
        (root / "stratamq/delivery.json").unlink()
        broker.start((DELIVERY,))
        with connect(broker.root, retry_timeout_s=60) as client:
            until(
                lambda: [one.retries for one in client.group_settings("billing")] == [5],
                "it is in the log",
            )
