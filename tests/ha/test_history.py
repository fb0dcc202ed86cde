"""Up to where two logs are one: against logs whose every byte is known."""

import random
from dataclasses import dataclass, field

import pytest
from stratamq_commitlog.recovery.cut_file import CutOrder
from stratamq_commitlog.recovery.own_state import extend
from stratamq_commitlog.replica.cutting import merged
from stratamq_ha.history import History, judge, refusal_to_follow, shared_end

from stratamq.formats.generation_number import Generation, make_number
from stratamq.formats.replication_opening import MasterAnswer, SlaveOpening, Verdict
from tests.support.sampling import few


@pytest.mark.parametrize(
    ("master", "slave", "expected"),
    [
        (([(1, 0)], 0, 100), ([(1, 0)], 0, 60), 60),
        (([(1, 0), (2, 100)], 0, 150), ([(1, 0)], 0, 120), 100),
        (([(1, 0), (2, 100)], 0, 150), ([(1, 0), (2, 100)], 0, 120), 120),
        (([(1, 0), (2, 100)], 0, 150), ([(1, 0), (3, 80)], 0, 120), 80),
        (([(1, 0), (2, 100)], 0, 150), ([(9, 0)], 0, 120), None),
        (([(1, 0)], 0, 100), ([(1, 0)], 0, 0), None),
        (([(1, 0), (2, 0)], 0, 100), ([(1, 0)], 0, 50), None),  # 1 is empty at the master
        (([(1, 0), (2, 100)], 0, 150), ([(1, 0), (2, 100)], 0, 60), 60),  # 2 begins later
        (([(1, 0)], 40, 100), ([(1, 0)], 0, 30), 30),  # what they share is gone at the master
        (([(1, 0), (3, 80), (1, 80)], 0, 90), ([(1, 0)], 0, 120), 90),
    ],
)
def test_shared_ends(master, slave, expected):
    assert shared_end(History(*master), History(*slave)) == expected


def judged(has: SlaveOpening, master: History | None = None) -> MasterAnswer:
    return judge(
        master or History([(1, 0)], 64, 200),
        has,
        shippable=200,
        confirmed=190,
        segment_bytes=64,
        name="b",
        address="h:1",
        own_terms=True,
    )


@pytest.mark.parametrize(
    ("has", "verdict", "cut_to"),
    [
        (SlaveOpening(0, 0, 64, "b", []), Verdict.BEGIN, 64),
        (SlaveOpening(128, 128, 64, "b", [(7, 128)]), Verdict.BEGIN, 64),
        (SlaveOpening(150, 0, 64, "b", [(1, 0)]), Verdict.KEEP, 150),
        (SlaveOpening(250, 0, 64, "b", [(1, 0)]), Verdict.REFUSED, 0),
        (SlaveOpening(50, 0, 64, "b", [(1, 0)]), Verdict.BEGIN, 64),
        (SlaveOpening(150, 0, 64, "b", [(7, 0)]), Verdict.UNRELATED, 64),
        (SlaveOpening(0, 0, 64, "c", []), Verdict.REFUSED, 0),
        (SlaveOpening(0, 0, 128, "b", []), Verdict.REFUSED, 0),
    ],
)
def test_verdicts(has, verdict, cut_to):
    keeps = judged(has)
    assert (keeps.verdict, keeps.cut_to, keeps.minimum) == (verdict, cut_to, 64)
    assert (keeps.address, keeps.generations) == ("h:1", [(1, 0)])


def test_an_empty_master_asks_for_a_promotion_and_not_for_the_slaves_log():
    has = SlaveOpening(150, 0, 64, "b", [(1, 0)])
    keeps = judged(has, History([(9, 0)], 0, 0))
    assert keeps.verdict is Verdict.UNRELATED
    assert "promote the slave" in keeps.sentence


@dataclass
class Log:
    """A log as a list of unique bytes: two logs share one when it is from the same write."""

    bytes_: list[int] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)

    def history(self) -> History:
        return History([(g.number, g.start) for g in self.generations], 0, len(self.bytes_))

    def lose_to(self, end: int) -> None:
        del self.bytes_[end:]


@pytest.mark.parametrize("seed", few(range(200), 60))
def test_after_any_losses_a_slave_that_is_cut_is_a_prefix_of_its_master(seed):
    """Two brokers alternate as master; power losses remove the ends of both logs; what the slave
    keeps equals the master's log, byte for byte, and holds at least what was never lost."""
    chance = random.Random(seed)
    brokers = [Log(), Log()]
    written = iter(range(1 << 30))
    numbers = iter(range(1, 1 << 20))

    def start_as_master(log: Log) -> None:
        log.generations = extend(log.generations, Generation(next(numbers), len(log.bytes_)))

    master, slave = brokers
    start_as_master(master)
    for _ in range(60):
        event = chance.randrange(6)
        if event <= 1:
            master.bytes_ += [next(written) for _ in range(chance.randrange(1, 20))]
        elif event == 2:
            master.lose_to(len(master.bytes_) - chance.randrange(0, 15))
            start_as_master(master)
        elif event == 3:
            slave.lose_to(len(slave.bytes_) - chance.randrange(0, 15))
        elif event == 4 and chance.random() < 0.3:
            master, slave = slave, master
            start_as_master(master)
        else:
            replicate(master, slave, chance)


def replicate(master: Log, slave: Log, chance: random.Random) -> None:
    shared = shared_end(master.history(), slave.history())
    same = next(
        (
            at
            for at, (ours, theirs) in enumerate(zip(master.bytes_, slave.bytes_, strict=False))
            if ours != theirs
        ),
        min(len(master.bytes_), len(slave.bytes_)),
    )
    kept = shared if shared is not None else 0
    assert kept <= same, "what is kept is the master's"
    slave.lose_to(kept)
    cut = CutOrder(kept, shared is None, tuple(master.generations))
    slave.generations = merged(slave.generations, cut)
    starts = [g.start for g in slave.generations]
    assert starts == sorted(starts)
    assert shared_end(master.history(), slave.history()) in (kept or None, kept)
    slave.bytes_ += master.bytes_[kept : kept + chance.randrange(0, 40)]
    again = shared_end(master.history(), slave.history())
    assert again == (len(slave.bytes_) or None), "what was shipped is known to be the master's"


# --- whom a slave follows ---


def keeps(*generations: tuple[int, int], member: str = "a") -> MasterAnswer:
    """Of a master of that history."""
    return MasterAnswer(Verdict.KEEP, 0, 0, 600, 600, "", "a:1", generations, member)


def number(term: int, starts: int) -> int:
    return make_number(term, starts, 7)


OLD, OURS, RIVAL = (number(3, 1), 0), (number(4, 1), 500), (number(4, 2), 500)
KNOWS = History((OLD, OURS), 0, 600)


@pytest.mark.parametrize(
    ("slave", "term", "promised_to", "master", "refusal"),
    [
        (KNOWS, 4, "", keeps(OLD, OURS), ""),
        (KNOWS, 4, "", keeps(OLD), "follows none below 4"),
        (KNOWS, 4, "", keeps(OLD, RIVAL), "a second master of term 4"),
        (History((OLD,), 0, 600), 4, "a", keeps(OLD, RIVAL), ""),
        (History((OLD,), 0, 600), 4, "c", keeps(OLD, RIVAL), "is promised to the member c"),
        (History((OLD,), 0, 600), 4, "a", keeps(OLD), "follows none below 4"),
        (KNOWS, 4, "", keeps(OLD, (number(5, 1), 600)), ""),
        (KNOWS, 4, "", keeps(OLD, (number(4_000, 1), 600)), "it is ignored"),
    ],
)
def test_a_slave_follows_the_one_master_of_the_highest_term_that_it_knows(
    slave, term, promised_to, master, refusal
):
    reason = refusal_to_follow(slave, term, promised_to, master, False)
    assert refusal in reason
    assert bool(reason) is bool(refusal)
