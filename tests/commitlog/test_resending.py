"""Producers that send again, over a log that dies, loses its power and changes its role.

No sequence is in the log twice, and nothing acknowledged is missing. Each rule that holds this,
switched off, is found out."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from stratamq_commitlog.messages import BatchResult, FrameBatch, KnownPlace, Numbers
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.write import resends
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.producer_window import ProducerWindow, WindowContents

from stratamq.errors import BusyError, NotWritableError
from stratamq.files.simulated import random_choice
from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.hosts import encode_host
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from stratamq.formats.producer_item import PRODUCER_ITEM, decode_item
from tests.support.logs import BORN, Store, batch_of

SEEDS = range(30)
STEPS = 80
PRODUCERS = (11, 22, 33)


class Broken(Exception):
    """A promise is."""


@dataclass
class Sent:
    """A batch as its producer knows it."""

    batch: FrameBatch
    sent_from: KnownPlace
    unanswered: bool = False
    settled: bool = False

    @property
    def sequences(self) -> list[tuple[int, int]]:
        numbers = self.batch.numbers
        return [(numbers.producer, numbers.first + at) for at in range(len(self.batch.lengths))]


@dataclass
class Scene:
    """One log and its producers. `sync`: what is acknowledged survives everything."""

    chance: random.Random
    sync: bool
    store: Store = field(init=False)
    open: list[Sent] = field(default_factory=list)
    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)
    given_up: set[tuple[int, int]] = field(default_factory=set)
    following: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = Store(
            1 << 13,
            seed=self.chance.randrange(1 << 30),
            property_checksum=self.chance.random() < 0.5,
            flush_disk_type="SYNC_FLUSH" if self.sync else "ASYNC_FLUSH",
            producer_window_bytes=self.chance.choice((0, 1_000, 5_000, 1 << 20)),
            snapshot_interval_ms=10,
        )
        self.start()

    # --- acts ---

    def start(self) -> None:
        self.store.start()
        if self.chance.random() < 0.3:
            self.store.log.window._contents.most_memory_bytes = 3_000
        for sent in self.open:
            sent.unanswered = True
        self.check()

    def send(self) -> None:
        producer = self.chance.choice(PRODUCERS)
        first = self.following.get(producer, 0)
        runs = [
            (self.chance.choice("ab"), queue_id, self._bodies())
            for queue_id in range(self.chance.randint(1, 2))
        ]
        shape = FrameShape(
            encode_host(BORN),
            property_checksum=self.store.settings["property_checksum"],
            producer=producer,
        )
        batch = replace(batch_of(runs, shape=shape), numbers=Numbers(producer, first))
        self.following[producer] = first + len(batch.lengths) + self.chance.randrange(2)
        log = self.store.log
        sent = Sent(batch, KnownPlace(log.generation, log.offsets.appended))
        self.open.append(sent)
        self._attempt(sent)

    def send_again(self) -> None:
        """A stream broke: what is open is unanswered, and goes out again in its order."""
        for sent in self.open:
            sent.unanswered = True
        for sent in list(self.open):
            numbers = replace(sent.batch.numbers, sent_from=sent.sent_from)
            self._attempt(replace_batch(sent, numbers))

    def step(self) -> None:
        self.store.step()

    def settle(self) -> None:
        self.store.settle()

    def tick(self) -> None:
        self.store.pass_time(20)

    def kill(self) -> None:
        self.store.kill()
        self.start()

    def power_loss(self) -> None:
        self.store.power_loss(random_choice(self.chance))
        self.start()

    def stop(self) -> None:
        self.store.stop()
        self.start()

    def change_role(self) -> None:
        for role in (Role.SLAVE, Role.ASYNC_MASTER):
            answers: list[object] = []
            self.store.log.set_role(RoleChange(role), answers.append)
            self.store.settle()
            assert answers == [None]

    # --- inside ---

    def _bodies(self) -> list[bytes]:
        return [self.chance.randbytes(self.chance.choice((10, 10, 200))) for _ in range(3)]

    def _attempt(self, sent: Sent) -> None:
        lost = self.chance.random() < 0.4

        def answered(result: BatchResult) -> None:
            if not lost and not sent.settled:
                self._take(sent, result)

        self.store.log.puts.batch(sent.batch, answered)

    def _take(self, sent: Sent, result: BatchResult) -> None:
        if isinstance(result.error, BusyError | NotWritableError):
            return
        if result.error is not None and not result.error.fields.get("beyond_window"):
            return
        sent.settled = True
        self.open = [one for one in self.open if one.sequences != sent.sequences]
        if result.error is not None:
            self.given_up |= set(sent.sequences)
            return
        assert result.status is SendStatus.PUT_OK
        rows = iter(sent.sequences)
        lengths = [(p.physical_offset, p.lengths.tolist()) for p in result.parts]
        for offset, sizes in lengths or [(result.physical_offset, sent.batch.lengths.tolist())]:
            for size in sizes:
                self.acknowledged[next(rows)] = offset
                offset += size
        assert next(rows, None) is None

    def check(self) -> None:
        places: dict[tuple[int, int], int] = {}
        found: Counter[tuple[int, int]] = Counter()
        for frame in self.store.frames():
            item = decode_item(frame.properties[PRODUCER_ITEM].encode())
            found[item] += 1
            places[item] = frame.physical_offset
        twice = [item for item, count in found.items() if count > 1]
        if twice:
            raise Broken(f"in the log twice: {twice}")
        if self.sync:
            wrong = {
                item: (offset, places.get(item))
                for item, offset in self.acknowledged.items()
                if places.get(item) != offset
            }
            if wrong:
                raise Broken(f"acknowledged and missing: {wrong}")

    def finish(self) -> None:
        self.store.settle()
        self.send_again()
        self.store.settle()
        self.kill()
        self.check()


def replace_batch(sent: Sent, numbers: Numbers) -> Sent:
    """The same message again: one object, so that both attempts settle it."""
    sent.batch = replace(sent.batch, numbers=numbers)
    return sent


ACTS = {
    "send": 10, "send_again": 3, "step": 6, "settle": 4, "tick": 3,
    "kill": 1, "power_loss": 1, "stop": 0.5, "change_role": 0.5,
}  # fmt: skip


def play(seed: int, *, sync: bool = True) -> Scene:
    chance = random.Random(seed)
    scene = Scene(chance, sync)
    names, weights = list(ACTS), list(ACTS.values())
    for name in chance.choices(names, weights, k=STEPS):
        getattr(scene, name)()
    scene.finish()
    return scene


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
def test_no_sequence_is_stored_twice_and_nothing_acknowledged_is_missing(sync):
    scenes = [play(seed, sync=sync) for seed in SEEDS]
    assert sum(len(scene.acknowledged) for scene in scenes) > 1_000
    assert any(scene.given_up for scene in scenes)
    assert any(scene.store.log.window.complete_from for scene in scenes)


# --- the rules, switched off ---


def begin_with_an_empty_window(patch: pytest.MonkeyPatch) -> None:
    load = ProducerWindow.load
    patch.setattr(ProducerWindow, "load", lambda self, contents: load(self, WindowContents(0)))


def believe_that_nothing_is_hidden(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerWindow, "may_hide", lambda self, sent_from: False)


def answer_what_is_sent_again_at_once(patch: pytest.MonkeyPatch) -> None:
    """Before it is flushed."""
    again = Appender._append_again

    def answered_early(self: Appender, item: object) -> tuple[int, int]:
        commit, self._commit = self._commit, lambda end, finish: finish(SendStatus.PUT_OK, None)
        try:
            return again(self, item)
        finally:
            self._commit = commit

    patch.setattr(Appender, "_append_again", answered_early)


def look_for_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resends, "is_suspected", lambda window, batch: False)


TWICE, MISSING = "in the log twice", "acknowledged and missing"
RULES: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    begin_with_an_empty_window: TWICE,
    believe_that_nothing_is_hidden: TWICE,
    look_for_nothing: TWICE,
    answer_what_is_sent_again_at_once: MISSING,
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_that_is_off_is_found_out(rule, monkeypatch):
    rule(monkeypatch)
    with pytest.raises(Broken, match=RULES[rule]):
        for seed in range(300):
            play(seed)
