"""Shared groups on real logs that are killed, cut, promoted and held up: what was acknowledged and
answered never comes back, what was not acknowledged is never lost, and the state is a function of
the log that is retained."""

from dataclasses import dataclass

import numpy as np
import pytest
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_delivery.delivery import Delivery
from stratamq_delivery.entries import Buried, Completed, HandedOut, Moved, Receipt, Started, Stopped
from stratamq_delivery.records import RECORDS, GroupPlace, decode
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.shared_queue import FINISHED, Hold

from stratamq.errors import ExpiredReceiptError, StrataError, UnavailableError
from stratamq.follow.fold import FoldPlace
from stratamq.formats.dispatch import dispatch_columns
from stratamq.formats.log_state import Role
from stratamq.store.log_pieces import LogPiece
from tests.follow.chance import World
from tests.follow.egg_scene import SEGMENT_BYTES, Broker, Service
from tests.support.sampling import few

PLACES = [GroupPlace("billing", "orders", 0, queue_id) for queue_id in range(3)]


class GroupsService(Service):
    """One start of the delivery service, with shared groups alone."""

    name, path = "delivery", "stratamq/delivery.json"

    def state(self, followed: FoldPlace) -> Delivery:
        self.groups = SharedGroups(followed, kept_bytes=SEGMENT_BYTES // 2)
        return Delivery([self.groups], followed)

    def follow(self, events: int = 1 << 30) -> None:
        super().follow(events)
        self.groups.moved(self.appends.is_active)


class GroupsBroker(Broker):
    service_type = GroupsService

    def copies(self):
        return self._about(lambda frame: frame.topic.startswith("%DLQ%"))


def image(groups: SharedGroups) -> dict[GroupPlace, list]:
    """What the log has decided."""
    return {place: [*queue] for place in PLACES if (queue := groups.folded(place)) is not None}


def whole_fold(broker: GroupsBroker, start: int) -> SharedGroups:
    """A fold of the log from `start` on, by a service that knows nothing."""
    groups = SharedGroups(FoldPlace())
    for offset, raw, _ in broker.store.members():
        if offset >= start:
            columns = dispatch_columns(raw, offset, np.array([len(raw)], np.uint32))
            groups.apply(LogPiece(offset, offset + len(raw), columns, raw))
    return groups


def buried_in(broker: GroupsBroker) -> dict[int, tuple[GroupPlace, Buried]]:
    """By the source of the copy."""
    bodies = [frame.body for frame in broker.store.frames() if frame.topic == RECORDS]
    entries = [entry for body in bodies for entry in decode(body).entries]
    return {one[1].source: one for one in entries if isinstance(one[1], Buried)}


@dataclass(frozen=True)
class Given:
    """A receipt that a client has."""

    place: GroupPlace
    receipt: Receipt


class GroupsWorld(World):
    broker_type = GroupsBroker

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.tokens = 0
        self.given: list[Given] = []
        self.asked: set[tuple[GroupPlace, int]] = set()
        """For which an acknowledgement was taken."""
        self.answered: set[tuple[GroupPlace, int]] = set()
        self.sources: set[int] = set()
        """Messages that were buried."""
        self.counts = dict.fromkeys(("new", "again", "ack", "nack", "lost", "expired", "bury"), 0)

    def ask(self) -> None:
        """Something else comes in."""
        self.master.store.put(bytes(4_000), "orders", properties={"KEYS": "k"})

    @property
    def groups(self) -> SharedGroups:
        return self.master.service.groups

    def act(self) -> None:
        appends = self.master.service.appends
        what = self.chance.random()
        if what < 0.2:
            self.master.service.settle()
            self.master.store.settle()
        elif what < 0.3:
            super().act()
        if not appends.is_active or what < 0.3:
            return
        place = self.chance.choice(PLACES)
        if self.groups.queue(place) is None:
            self.groups.decide(place, Started(0))
        now_ms = appends.time.now_ms()
        assert now_ms is not None
        self.chance.choice((self.hand_out, self.hand_out_again, self.settle, self.settle))(
            place, now_ms
        )

    @property
    def is_current(self) -> bool:
        """The service knows of the last change of role. Until then it may hand out what another
        master's workers have acknowledged; nothing that it decides is stored."""
        service = self.master.service
        return service.followed.generation == self.master.store.log.generation

    def hand_out(self, place: GroupPlace, now_ms: int) -> None:
        queue, most = self.groups.queue(place), self.chance.randrange(1, 5)
        for bounds in queue.passed_over(most) or [(queue.next, queue.next + most)]:
            self.give(place, bounds, 1, now_ms)
        self.counts["new"] += 1

    def hand_out_again(self, place: GroupPlace, now_ms: int) -> None:
        for bounds, hold in self.groups.queue(place).ready(now_ms, self.chance.randrange(1, 6)):
            assert hold.until_ms <= now_ms, "two clients have it at a time"
            if hold.attempt >= 2:
                self.bury(place, bounds[0], hold)
                continue
            self.give(place, bounds, hold.attempt + 1, now_ms)
            self.counts["again"] += 1

    def give(self, place: GroupPlace, bounds: tuple[int, int], attempt: int, now_ms: int) -> None:
        self.tokens += 1
        until_ms = now_ms + self.chance.randrange(1, 3_000)
        entry = HandedOut((bounds,), self.tokens, attempt, until_ms, "worker", False)
        self.groups.decide(place, entry)
        for offset in range(*bounds):
            back = (place, offset) in self.answered and self.is_current
            assert not back, "what was acknowledged comes back"
            self.given.append(Given(place, Receipt(offset, self.tokens, attempt, until_ms)))

    def bury(self, place: GroupPlace, offset: int, hold: Hold) -> None:
        """Any message of the log stands for the one that failed."""
        applied = self.master.service.followed.applied
        frame = next(
            (
                one
                for one in self.master.store.frames()
                if one.topic == place.topic
                and one.physical_offset < applied
                and one.physical_offset not in self.sources
            ),
            None,
        )
        if frame is None:
            return
        self.sources.add(int(frame.physical_offset))
        self.asked.add((place, offset))
        runs, source = ((offset, offset + 1),), frame.physical_offset
        self.groups.decide(place, Buried(runs, hold.token, hold.attempt, source, frame.total_size))
        self.counts["bury"] += 1

    def settle(self, place: GroupPlace, now_ms: int) -> None:
        if not self.given:
            return
        given = self.chance.choice(self.given[-40:])
        place, receipt = given.place, given.receipt
        queue = self.groups.queue(place)
        try:
            if queue is None:
                return
            queue.require(receipt, now_ms)
        except ExpiredReceiptError:
            self.counts["expired"] += 1
            return
        run, key = ((receipt.offset, receipt.offset + 1),), (place, receipt.offset)
        if self.chance.random() < 0.6:
            self.asked.add(key)
            self.groups.decide(place, Completed(run, receipt.token))
            self.groups.promise(lambda error: self.answer(key, error))
            self.counts["ack"] += 1
            return
        self.tokens += 1
        until_ms = now_ms + self.chance.randrange(1, 3_000)
        new = HandedOut(run, self.tokens, receipt.attempt, until_ms, "worker", False)
        self.groups.decide(place, Moved(run, receipt.token, new))
        self.given.append(
            Given(place, Receipt(receipt.offset, self.tokens, receipt.attempt, until_ms))
        )
        self.counts["nack"] += 1

    def answer(self, key: tuple[GroupPlace, int], error: StrataError | None) -> None:
        if error is None:
            self.answered.add(key)
        else:
            assert isinstance(error, UnavailableError)
            self.counts["lost"] += 1

    def promote(self) -> None:
        """A slave that lacks something never told that it has it: no promise is broken."""
        had = self.master.store.frame_bytes()
        super().promote()
        if self.master.store.frame_bytes()[: len(had)] != had:
            self.answered.clear()

    def rest(self) -> None:
        super().rest()
        self.slave.take_from(self.master)
        self.slave.service.follow()

    def check(self) -> None:
        state = image(self.groups)
        held = [self.groups.folded(place).unfinished for place in state]
        assert self.groups.unfinished == sum(held)
        for place, runs in state.items():
            floor = runs[0][0] if runs else self.groups.folded(place).floor
            finished = {(place, offset) for offset in range(floor)}
            for start, end, holder in runs:
                if holder is FINISHED:
                    finished |= {(place, offset) for offset in range(start, end)}
            assert finished <= self.asked, "lost: nobody acknowledged it"
            assert {key for key in self.answered if key[0] == place} <= finished
        assert {place for place, _ in self.answered} <= state.keys()
        assert image(whole_fold(self.master, 0)) == state
        assert image(self.slave.service.groups) == state
        if (whole_at := self.groups.newest_whole) >= 0:
            assert image(whole_fold(self.master, whole_at)) == state
        buried, copies = buried_in(self.master), self.master.copies()
        assert {*buried} == {*copies} and not self.groups.dead_letters.owed
        for offset, (place, entry) in buried.items():
            (copy,) = copies[offset]
            assert (copy.topic, copy.body) == ("%DLQ%billing", bytes(4_000))
            assert copy.reconsume_times == entry.attempt and copy.properties["KEYS"] == "k"
            assert copy.properties["DLQ_ORIGIN_TOPIC"] == place.topic
        for place in PLACES:
            ahead, folded = self.groups.queue(place), self.groups.folded(place)
            assert [*(ahead or ())] == [*(folded or ())]


@pytest.mark.parametrize("seed", few(range(400), 40))
def test_what_was_acknowledged_never_comes_back_and_nothing_is_lost(seed):
    world = GroupsWorld(seed)
    for _ in range(250):
        world.act()
    world.rest()
    world.check()


FAR_MS = 1 << 50


def given_out(broker: GroupsBroker) -> SharedGroups:
    """A queue of three messages, whose first two have just been handed out."""
    service, place = broker.service, PLACES[0]
    for _ in range(3):
        broker.store.put(b"order", "orders", queue_id=0)
    service.settle()
    service.groups.decide(place, Started(0))
    service.groups.decide(place, HandedOut(((0, 2),), 7, 1, FAR_MS, "worker", False))
    return service.groups


@pytest.mark.parametrize("how_far", ["decided", "sent", "stored"])
def test_a_hand_out_outlives_a_stream_that_breaks(how_far):
    """A worker has the messages: a batch of another ability that is refused must not give them to
    a second one."""
    broker = GroupsBroker()
    service, groups = broker.service, given_out(broker)
    if how_far != "decided":
        service.send()
    if how_far == "stored":
        service.wire.read()
        broker.store.settle()
    service.hang_up()
    groups.moved(False)
    service.settle()
    (held,) = groups.folded(PLACES[0]).holds
    assert (held.token, groups.folded(PLACES[0]).next) == (7, 2)
    bodies = [frame.body for frame in broker.store.frames() if frame.topic == RECORDS]
    entries = [one for body in bodies for one in decode(body).entries if not decode(body).is_piece]
    assert sum(isinstance(entry, HandedOut) for _, entry in entries) == 1


def test_a_hand_out_of_what_was_returned_outlives_a_stream_that_breaks():
    """So does the return: the log would say that two workers have the message at once."""
    broker = GroupsBroker()
    service, groups = broker.service, given_out(broker)
    service.settle()
    groups.decide(PLACES[0], Moved(((0, 1),), 7, HandedOut(((0, 1),), 8, 1, 1, "worker", False)))
    groups.decide(PLACES[0], HandedOut(((0, 1),), 9, 2, FAR_MS, "other", False))
    service.send()
    service.hang_up()
    groups.moved(False)
    service.settle()
    bodies = [frame.body for frame in broker.store.frames() if frame.topic == RECORDS]
    found = [record for body in bodies if not (record := decode(body)).is_piece]
    kinds = [type(entry) for record in found for _, entry in record.entries]
    assert kinds == [Started, HandedOut, Moved, HandedOut]


def test_a_hand_out_of_a_queue_that_began_again_outlives_a_stream_that_breaks():
    """So does the end before: what was finished then may be handed out again."""
    broker = GroupsBroker()
    service, groups = broker.service, given_out(broker)
    groups.decide(PLACES[0], Completed(((0, 2),), 7))
    service.settle()
    for entry in (Stopped(), Started(0), HandedOut(((0, 1),), 9, 1, FAR_MS, "other", False)):
        groups.decide(PLACES[0], entry)
    service.send()
    service.hang_up()
    groups.moved(False)
    service.settle()
    (held,) = groups.folded(PLACES[0]).holds
    assert (held.token, groups.folded(PLACES[0]).floor) == (9, 0)


def test_what_is_stopped_before_its_start_is_in_the_log_stays_stopped():
    """A whole state that is written behind it says so, too."""
    broker = GroupsBroker()
    service, groups = broker.service, given_out(broker)
    service.send()
    groups.decide(PLACES[0], Stopped())
    assert groups.queue(PLACES[0]) is None
    service.settle()
    assert groups.queue(PLACES[0]) is None and groups.folded(PLACES[0]) is None
    assert image(whole_fold(broker, 0)) == {}


def test_what_was_not_stored_in_an_older_generation_stays_away():
    """Another master may have given the messages to its workers."""
    broker = GroupsBroker()
    service, groups = broker.service, given_out(broker)
    broker.set_role(RoleChange(Role.SLAVE, master="m:1"))
    service.settle()
    broker.set_role(RoleChange(Role.ASYNC_MASTER))
    service.settle()
    assert service.appends.is_active and groups.queue(PLACES[0]) is None


def acknowledged_in(broker: GroupsBroker) -> list[StrataError | None]:
    """The answer to an acknowledgement that the log has answered, and the fold has not read."""
    service, groups = broker.service, given_out(broker)
    service.settle()
    answers: list[StrataError | None] = []
    groups.decide(PLACES[0], Completed(((0, 2),), 7))
    groups.promise(answers.append)
    assert service.send() and not answers
    service.wire.read()
    broker.store.settle()
    service.receive()
    assert groups.folded(PLACES[0]).floor == 0
    return answers


def test_an_acknowledgement_is_answered_once_the_log_has_flushed_it():
    """Not some milliseconds later, when the fold reads it; the next record goes out, too."""
    broker = GroupsBroker(flush_disk_type="SYNC_FLUSH")
    assert acknowledged_in(broker) == [None]
    groups, answers = broker.service.groups, []
    groups.promise(answers.append)
    assert answers == [None]
    groups.decide(PLACES[0], HandedOut(((2, 3),), 8, 1, FAR_MS, "worker", False))
    assert broker.service.send()
    broker.service.settle()
    (held,) = groups.folded(PLACES[0]).holds
    assert (held.token, groups.folded(PLACES[0]).floor) == (8, 2)


def test_a_log_that_flushes_later_does_not_acknowledge_before():
    """Its PUT_OK does not say that a record outlives a loss of power."""
    broker = GroupsBroker(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=1_000)
    assert acknowledged_in(broker) == []
    assert broker.service.send() is None


def test_the_whole_state_is_sent_once_while_the_fold_is_behind():
    broker = GroupsBroker(flush_disk_type="SYNC_FLUSH")
    service, groups = broker.service, given_out(broker)
    for number in range(5):
        if number == 1:
            service.follow()
        if service.send():
            service.wire.read()
        broker.store.settle()
        service.receive()
    assert groups.newest_whole < 0
    bodies = [frame.body for frame in broker.store.frames() if frame.topic == RECORDS]
    assert sum(decode(body).is_last for body in bodies) == 1
    service.settle()
    assert groups.newest_whole >= 0


def test_what_was_stored_before_this_start_is_acknowledged_again_once_it_is_flushed():
    """The first answer was lost with the service: the second one says as much as that would have
    said, and a loss of power may still take the record."""
    broker = GroupsBroker(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=1_000)
    assert acknowledged_in(broker) == []
    broker.kill_service()
    service = broker.service
    service.settle()
    assert service.appends.is_active and service.groups.queue(PLACES[0]).floor == 2
    answers: list[StrataError | None] = []
    service.groups.promise(answers.append)
    assert not answers
    broker.store.pass_time(1_000)
    service.settle()
    assert answers == [None]
