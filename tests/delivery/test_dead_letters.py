"""Copies that are owed to a group's dead-letter topic, and what operators hand out again from
there: to that group alone, each once for each time that it was asked for."""

import json
import threading
from dataclasses import replace

import pytest
from stratamq_delivery.audit import Audit, audit
from stratamq_delivery.dead_letters import DeadLetters
from stratamq_delivery.delivery import Delivery
from stratamq_delivery.entries import Buried
from stratamq_delivery.past import state_at
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.replays import Replays, ReplayWish
from stratamq_delivery.shared_groups import SharedGroups

from stratamq.client import connect
from stratamq.errors import InvalidRequestError, UnavailableError
from stratamq.files.simulated import SimulatedDisk, keep_nothing
from stratamq.follow.fold import FoldPlace
from stratamq.formats.frame import Frame
from stratamq.formats.source_item import SOURCE_ITEM, MessageSource, encode_source, source_of
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.store.segment_reader import SegmentReader
from tests.cli.processes import stratamq
from tests.delivery.test_levels import MASTER, TO_SLAVE
from tests.delivery.test_sharing import ROOMS, acknowledge, fill, receive, settle
from tests.follow import egg_scene
from tests.follow.chance import HOUR_MS, World
from tests.support import brokers
from tests.support.brokers import DELIVERY
from tests.support.logs import batch
from tests.support.sampling import few
from tests.support.waiting import until

PLACE = GroupPlace("billing", "orders", 0, 0)


def test_what_was_taken_on_a_stream_that_broke_is_owed_again():
    followed = FoldPlace(generation=1)
    followed.segments = SegmentReader(SimulatedDisk(1).files(), COMMIT_LOG, 4_096, 4)
    letters = DeadLetters(followed)
    letters.add(PLACE, Buried(((0, 1),), 1, 17, source=0, size=100))
    assert letters.due_ms() is not None
    letters.take(0, 32)
    assert letters.due_ms() is None
    letters.begin()
    assert letters.due_ms() is not None


def test_the_log_must_keep_a_message_whose_dead_letter_is_owed():
    groups = SharedGroups(FoldPlace(generation=1))
    assert groups.needed() is None
    for source in (700, 300):
        groups.dead_letters.add(PLACE, Buried(((0, 1),), 1, 17, source=source, size=100))
    assert groups.needed() == 300


# --- replays ---


class ReplayService(egg_scene.Service):
    """One start of the delivery service, with replays alone."""

    name, path = "delivery", "stratamq/delivery.json"

    def state(self, followed: FoldPlace) -> Delivery:
        self.arrived: list[str] = []
        self.replays = Replays(followed, self.arrived.append)
        return Delivery([self.replays], followed)

    def follow(self, events: int = 1 << 30) -> None:
        super().follow(events)
        self.replays.moved(not self.followed.is_slave)


class ReplayBroker(egg_scene.Broker):
    service_type = ReplayService

    def letter(self, body: bytes = b"egg") -> int:
        """A dead letter of the group billing. Its offset."""
        return self.store.put(body, "%DLQ%billing", properties={"KEYS": "k"}).physical_offset

    def letters(self) -> dict[int, Frame]:
        frames = self.store.frames()
        return {one.physical_offset: one for one in frames if one.topic == "%DLQ%billing"}

    def replays(self) -> dict[int, list[Frame]]:
        """The copies, by the dead letter."""
        found: dict[int, list[Frame]] = {}
        for frame in self.store.frames():
            if frame.topic.startswith("%RETRY%"):
                found.setdefault(source_of(frame.properties_raw).offset, []).append(frame)
        return found

    def ask(self, letter: int, topic: str = "orders") -> list:
        """What the operator is told is added to the list that is returned."""
        source = MessageSource(self.service.followed.generation_of(letter), letter)
        size = self.letters()[letter].total_size
        answers: list = []
        self.service.replays.ask(ReplayWish(source, size, "billing", topic), answers.append)
        return answers

    def settle(self) -> None:
        self.service.settle()
        self.service.follow()


@pytest.fixture
def scene():
    scene = ReplayBroker()
    scene.settle()
    return scene


def test_a_dead_letter_is_replayed_once_and_counted_whatever_is_killed(scene):
    letter, other = scene.letter(), scene.letter(b"other")
    scene.settle()
    answers = scene.ask(letter)
    scene.settle()
    assert scene.service.arrived == ["%RETRY%billing_orders"], "workers that wait are woken"
    (copy,) = scene.replays()[letter]
    assert (answers, copy.topic, copy.body) == ([None], "%RETRY%billing_orders", b"egg")
    assert (copy.queue_id, copy.reconsume_times, copy.properties["KEYS"]) == (0, 0, "k")
    scene.service.save()
    scene.kill_service()
    scene.settle()
    scene.store.disk.files().unlink(scene.service.path)
    scene.restart_log()
    scene.settle()
    replays = scene.service.replays
    assert (replays.times(letter), replays.times(other)) == (1, 0)
    assert replays.end_of("billing", "orders") == 1 and replays.end_of("mail", "orders") == 0
    assert scene.replays().keys() == {letter}
    again = scene.ask(letter)
    scene.settle()
    assert (again, replays.times(letter), len(scene.replays()[letter])) == ([None], 2, 2)


def test_a_replay_on_a_stream_that_breaks_is_made_once_on_the_next(scene):
    letter = scene.letter()
    scene.settle()
    answers = scene.ask(letter)
    assert scene.service.send() is not None
    scene.service.hang_up()
    scene.settle()
    assert answers == [None] and len(scene.replays()[letter]) == 1


def test_what_the_log_refuses_is_told_and_not_tried_again(scene):
    letter = scene.letter()
    scene.settle()
    answers = scene.ask(letter, "x" * 300)
    scene.settle()
    assert isinstance(answers[0], InvalidRequestError) and scene.replays() == {}
    assert scene.service.replays.due_ms() is None


def test_a_replay_is_answered_when_it_is_flushed_and_what_the_log_lost_was_none():
    scene = ReplayBroker(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=HOUR_MS)
    letter = scene.letter()
    scene.store.pass_time(HOUR_MS)
    scene.settle()
    answers = scene.ask(letter)
    scene.settle()
    assert (answers, scene.service.replays.times(letter)) == ([], 1), "not flushed"
    scene.store.power_loss(keep_nothing)
    scene.store.start()
    scene.restart_log()
    scene.settle()
    assert scene.service.replays.times(letter) == 0
    scene.ask(letter)
    scene.settle()
    slave = ReplayBroker(2, role="SLAVE")
    slave.take_from(scene)
    slave.set_role(MASTER)
    slave.settle()
    assert slave.service.replays.times(letter) == 1


def test_a_replay_that_a_cut_takes_away_was_none(scene):
    letter = scene.letter()
    scene.settle()
    end = scene.store.end()
    scene.ask(letter)
    scene.settle()
    replays = scene.service.replays
    assert (replays.times(letter), replays.end_of("billing", "orders")) == (1, 1)
    scene.set_role(TO_SLAVE)
    scene.cut(end, scene.store.log.state.generations[:1])
    scene.settle()
    scene.settle()
    assert (replays.times(letter), replays.end_of("billing", "orders")) == (0, 0)


def test_what_a_classic_consumer_sent_back_is_no_replay(scene):
    """Its copy lies in a retry topic, and names a delayed message."""
    source = scene.letter()
    scene.settle()
    place = MessageSource(scene.service.followed.generation_of(source), source)
    item = encode_source(place).decode().removeprefix(f"{SOURCE_ITEM}\x01")
    own = batch([b"egg"], "%RETRY%billing_orders", properties={SOURCE_ITEM: item})
    assert scene.store.put_batch(replace(own, fence=lambda: None)).error is None
    scene.settle()
    replays = scene.service.replays
    assert (replays.times(source), replays.end_of("billing", "orders")) == (0, 0)


class ReplayWorld(World):
    broker_type = ReplayBroker

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.asked: list[tuple[ReplayService, int, list]] = []

    def ask(self) -> None:
        master = self.master
        letters = [*master.letters()] if self.chance.random() < 0.7 else []
        if letters and master.service.appends.is_active:
            letter = self.chance.choice(letters[-4:])
            self.asked.append((master.service, letter, master.ask(letter)))
        else:
            master.letter(b"%d" % self.chance.getrandbits(32))

    def last_due_ms(self) -> int:
        return 0

    def promote(self) -> None:
        self.slave.take_from(self.master)  # what is answered is on the slaves that were asked for
        super().promote()


@pytest.mark.parametrize("seed", few(range(200), 20))
def test_each_replay_that_was_answered_is_in_the_log_whatever_happens(seed):
    world = ReplayWorld(seed)
    for _ in range(120):
        world.act()
    world.rest()
    master = world.master
    master.settle()
    replays, copies, letters = master.service.replays, master.replays(), master.letters()
    for letter in letters:
        asked = [answers for _, one, answers in world.asked if one == letter]
        answered = sum(answers == [None] for answers in asked)
        mine = copies.get(letter, [])
        assert len(mine) <= len(asked) and (mine or not answered)
        assert len(mine) == replays.times(letter)
        assert {copy.body for copy in mine} <= {letters[letter].body}
    for service, _, answers in world.asked:
        assert len(answers) == 1 or (not answers and service is not master.service)
        assert all(one is None or isinstance(one, UnavailableError) for one in answers)


# --- on a broker ---

SETTINGS = ("delivery.shared_attempts=1",)


@pytest.fixture
def broker(tmp_path):
    with brokers.Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        yield broker.start(ROOMS)


def bury(broker: brokers.Broker, count: int) -> list:
    """So many dead letters of the group billing, all of the topic orders."""
    fill(broker, 0, count, queues=1)
    for group in ("billing", "mail"):
        got = receive(broker, group=group)
        while len(got) < count:
            got += receive(broker, group=group)
        if group == "mail":
            acknowledge(broker, got, group=group)
        else:
            settle(broker, "ReturnMessages", got, invisible_ms=1)
    with connect(broker.root, retry_timeout_s=60) as client:
        letters = lambda: client.admin.dead_letters("billing").letters  # noqa: E731
        until(lambda: len(letters()) == count, "all are dead letters")
        return list(letters())


def audited(broker: brokers.Broker) -> Audit:
    with connect(broker.root, retry_timeout_s=60) as client:
        end = client.log_state().appended_offset
    until(lambda: state_at(broker.root).offset >= end, "the files know it")
    return audit(broker.root)


def bodies(messages) -> list[bytes]:
    return sorted(one.body for one in messages)


def test_workers_of_the_group_alone_get_what_is_replayed(broker):
    letters = bury(broker, 3)
    assert {(one.origin_topic, one.attempts, one.replays) for one in letters} == {("orders", 1, 0)}
    with connect(broker.root, retry_timeout_s=60) as client:
        outcomes = client.admin.replay_dead_letters("billing", limit=2)
        assert [(one.place, one.refusal) for one in outcomes] == [
            (one.place, "") for one in letters[:2]
        ]
        with client.subscribe("orders", "billing") as worker:
            got = worker.receive(8, wait_s=20)
            while len(got) < 2:
                got += worker.receive(8, wait_s=20)
            assert bodies(got) == [b"0", b"1"] and {one.topic for one in got} == {"orders"}
            worker.ack(got)
        assert not receive(broker, group="mail", wait_ms=0)
        broker.kill_all()
        broker.start(ROOMS)
        assert not receive(broker, wait_ms=1_000)
        state = client.admin.dead_letters("billing").letters
        assert [one.replays for one in state] == [1, 1, 0]
        (last,) = client.admin.replay_dead_letters("billing")
        assert (last.place, last.refusal) == (letters[2].place, "")
        assert client.admin.replay_dead_letters("billing") == ()
        (again,) = receive(broker)
        assert acknowledge(broker, [again]) == [""]
    found = audited(broker)
    assert (found.faults, found.counts["replayed"]) == ([], 3)


def test_a_worker_that_waits_gets_a_replay_and_one_that_fails_is_buried_again(broker):
    (letter,) = bury(broker, 1)
    with connect(broker.root, retry_timeout_s=60) as client:
        found: list = []
        waiting = threading.Thread(target=lambda: found.extend(receive(broker, wait_ms=30_000)))
        waiting.start()
        (done,) = client.admin.replay_dead_letters("billing", [letter.place])
        assert done.refusal == ""
        waiting.join(120)
        (message,) = found
        settle(broker, "ReturnMessages", [message], invisible_ms=1)
        until(lambda: len(client.admin.dead_letters("billing").letters) == 2, "it is buried again")
        second = client.admin.dead_letters("billing", begin=1).letters[0]
        assert (second.origin_topic, second.replays) == ("orders", 0)
        broker.kill(DELIVERY)
        broker.start((DELIVERY,))
        assert client.admin.replay_dead_letters("billing", [second.place])[0].refusal == ""
        (message,) = receive(broker)
        assert acknowledge(broker, [message]) == [""]
    assert audited(broker).faults == []


def test_what_its_worker_gives_up_is_a_dead_letter_once_whatever_is_killed(broker):
    fill(broker, 0, 3, queues=1)
    got = receive(broker)
    assert len(got) == 3
    refused = settle(broker, "BuryMessages", got[:1], group="mail")
    assert "no receipt of group mail" in refused[0].refusal
    for _ in range(2):
        outcomes = settle(broker, "BuryMessages", got[:2], attempts=7)
        assert [one.refusal for one in outcomes] == ["", ""], "again: nothing is left to do"
    broker.kill(DELIVERY)
    broker.start((DELIVERY,))
    assert acknowledge(broker, got[2:]) == [""]
    with connect(broker.root, retry_timeout_s=60) as client:
        letters = lambda: client.admin.dead_letters("billing").letters  # noqa: E731
        until(lambda: len(letters()) == 2, "both are dead letters")
        assert [(one.origin_topic, one.attempts) for one in letters()] == [("orders", 7)] * 2
    assert receive(broker, wait_ms=0) == []
    found = audited(broker)
    assert (found.faults, found.counts["buried"]) == ([], 2)


def test_what_is_no_dead_letter_or_nobody_would_get_is_refused(broker):
    (letter,) = bury(broker, 1)
    generation, _, offset = letter.place.partition(":")
    wrong = [
        f"{generation}:{int(offset) + 1}",
        f"{int(generation) + 1}:{offset}",
        f"{generation}:0",
    ]
    with connect(broker.root, retry_timeout_s=60) as client:
        for one in client.admin.replay_dead_letters("billing", wrong):
            assert "no dead letter of group billing" in one.refusal
        (other,) = client.admin.replay_dead_letters("mail", [letter.place])
        assert "no dead letter of group mail" in other.refusal
        client.stop_sharing("billing")
        (refused,) = client.admin.replay_dead_letters("billing", [letter.place])
        assert "does not share 'orders'" in refused.refusal
        assert client.admin.dead_letters("billing").letters[0].replays == 0
        assert client.admin.dead_letters("nobody").letters == ()


def test_operators_list_and_replay(broker):
    letters = bury(broker, 3)

    def run(*arguments: str):
        return stratamq("groups", "dlq", *arguments, "-o", "json", data=broker.root)

    done = run("list", "billing", "--limit", "2")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["place"] for row in rows] == [one.place for one in letters[:2]]
    assert b"--from 2" in done.stderr
    done = run("replay", "billing", rows[0]["messageId"])
    assert (done.returncode, json.loads(done.stdout)["replayed"]) == (0, True), done.stderr
    done = run("replay", "billing", rows[0]["place"])
    assert json.loads(done.stdout)["replayed"], "asked for by name, it is replayed again"
    done = run("replay", "billing", "--limit", "1")
    assert json.loads(done.stdout)["place"] == letters[1].place
    assert b"has the id nonsense" in run("replay", "billing", "nonsense").stderr
    refused = run("replay", "billing", "1:2")
    assert refused.returncode == 1 and not json.loads(refused.stdout)["replayed"]
    rows = [json.loads(line) for line in run("list", "billing").stdout.splitlines()]
    assert [row["replays"] for row in rows] == [2, 1, 0]
