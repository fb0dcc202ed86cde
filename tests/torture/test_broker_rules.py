"""What each rule of replication and promotion is for, with the real logs of two and three brokers:
the shortest story in which a message that was acknowledged is lost without the rule, or two brokers
are masters of one term. With the rule nothing of the kind happens.

A seed decides every order and every delay; `stratamq torture brokers` looks for other stories.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from stratamq_commitlog.replica import cutting, membership, role_change, slave_data
from stratamq_commitlog.replica.acknowledgement import Replicas
from stratamq_commitlog.replica.high_water_mark import HighWaterMark
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.roles import ROLE_PATH
from stratamq_ha import (
    history,
    master_agreement,
    peer_policy,
    promotion,
    promotion_steps,
    slave_agreement,
)
from stratamq_ha.peer_policy import Joining
from stratamq_ha.promotion import Assessment
from stratamq_ha.slaves import Slaves
from stratamq_torture.brokers import episodes, keeper
from stratamq_torture.brokers.cluster import Cluster
from stratamq_torture.brokers.keeper import Keeper
from stratamq_torture.brokers.node import Node
from stratamq_torture.brokers.world import Settings
from stratamq_torture.simulated.world import SYNC, standard
from stratamq_torture.trial import Violation

from stratamq.formats.generation_number import GREATEST_TERM
from stratamq.formats.log_state import Role
from stratamq.formats.members import Members
from stratamq.formats.replication_opening import MasterAnswer, SlaveOpening, Verdict

SEEDS = (5, 6, 7)
"""Chance decides what happens between the steps of a story."""
A, B, C = 0, 1, 2


class Story:
    """`brokers` of which A is the master, all of them whole, with the same messages."""

    def __init__(self, brokers: int, required: int, seed: int = SEEDS[0]) -> None:
        log = replace(
            standard(flush=SYNC, segment_bytes=8192).log,
            followers=(),
            required_replicas=required,
            wait_for_peers=True,
            take_back=False,
            slave_timeout_ms=3_000,
        )
        settings = Settings(brokers, required, True, True, True, 0.0, log)
        self.cluster = Cluster(settings, random.Random(seed))
        for node in self.cluster.nodes:
            self.cluster.start(node)
        self.until(self.cluster.whole)
        self.send(A)
        self.until(self.cluster.whole)

    def until(self, condition: Callable[[], bool], steps: int = 6_000) -> None:
        """Go on until then. AssertionError when it does not come to that."""
        for _ in range(steps):
            if condition():
                return
            self.cluster.step()
        raise AssertionError("it does not come to that")

    def run(self, steps: int = 600) -> None:
        self.cluster.run(steps)

    def apart(self, *pairs: tuple[int, int]) -> None:
        self.cluster.apart = {frozenset(pair) for pair in pairs}

    def questions_miss(self, chance: float) -> None:
        """How brokers stand is not heard; connections of slaves continue."""
        self.cluster.settings = replace(self.cluster.settings, misses=chance)

    def send(self, number: int) -> None:
        """Three messages, and time enough for an answer."""
        self.cluster.send(self.cluster.nodes[number])
        self.run()

    def promote(self, number: int, steps: int = 1_500) -> None:
        self.cluster.promote(self.cluster.nodes[number])
        self.run(steps)

    def acknowledged(self) -> int:
        return sum(one.replicated for one in self.cluster.ledger.promises.values())

    def stop(self, number: int) -> None:
        self.cluster.kill(self.cluster.nodes[number])

    def start(self, number: int) -> None:
        self.cluster.start(self.cluster.nodes[number])

    def end(self) -> None:
        """In the end all logs are complete, and every acknowledged message is there."""
        self.cluster.heal()
        for node in self.cluster.nodes:
            self.cluster.start(node)
        self.run(2_000)
        for node in self.cluster.nodes:
            if not any(each.serves for each in self.cluster.nodes):
                self.promote(node.number)
        serving = [node for node in self.cluster.nodes if node.serves]
        for node in serving:
            self.cluster.check(node)
        assert serving


def cut_off_from_both(story: Story) -> None:
    """B hears neither the master nor C, and is promoted; A continues through C."""
    story.apart((A, B), (B, C))
    story.promote(B)
    before = story.acknowledged()
    story.send(A)
    assert story.acknowledged() > before
    story.end()


def two_candidates(story: Story) -> None:
    """All three brokers are isolated, and B and C are promoted."""
    story.apart((A, B), (A, C), (B, C))
    story.cluster.promote(story.cluster.nodes[B])
    story.promote(C)
    story.end()


def promised_and_gone_back(story: Story) -> None:
    """C promises B a term, then is ordered to follow the old master, which does not know it."""
    cluster = story.cluster
    story.apart((A, B), (A, C))
    cluster.promote(cluster.nodes[B])
    story.until(lambda: cluster.nodes[B].is_master)
    story.apart((A, B), (B, C))
    story.questions_miss(1.0)
    log = cluster.nodes[C].log
    assert log is not None
    log.set_role(
        RoleChange(Role.SLAVE, master=str(A), reason="an operator's command"), lambda error: None
    )
    story.run()
    story.send(A)
    story.questions_miss(0.0)
    story.end()


def half_open(story: Story) -> None:
    """Two must acknowledge: C is stalled, and B acknowledges on an old connection and a new one."""
    cluster = story.cluster
    cluster.paused.add(C)
    cluster.send(cluster.nodes[A])
    slave = cluster.links[B]
    master = cluster.nodes[A].log
    assert master is not None

    story.until(lambda: slave.under_way == master.offsets.appended > slave.acknowledged)
    slave.half_open()
    story.run()
    story.apart((A, B), (A, C), (B, C))
    cluster.paused.clear()
    story.run()
    story.promote(C)
    story.end()


def restored_and_promoted(story: Story) -> None:
    """B is restored from a copy, is isolated, and is promoted."""
    cluster = story.cluster
    story.stop(B)
    cluster.back_up(cluster.nodes[B])
    story.start(B)
    story.until(cluster.whole)
    before = story.acknowledged()
    story.send(A)
    assert story.acknowledged() > before
    cluster.restore(cluster.nodes[B])
    story.apart((A, B))
    story.start(B)
    story.run()
    story.promote(B)
    story.end()


def promised_and_forgotten(story: Story) -> None:
    """C promises B a term, is put back to a copy from before, and hears the old master only."""
    cluster = story.cluster
    story.stop(C)
    cluster.back_up(cluster.nodes[C])
    story.start(C)
    story.until(cluster.whole)
    story.apart((A, B), (A, C))
    story.promote(B)
    assert cluster.opened
    cluster.restore(cluster.nodes[C])
    story.apart((A, B), (B, C))
    story.start(C)
    story.run()
    story.send(A)
    story.run()
    story.end()


def put_back_without_a_word(story: Story) -> None:
    """The master is put back to a copy, without the command."""
    cluster = story.cluster
    story.stop(A)
    cluster.back_up(cluster.nodes[A])
    story.start(A)
    story.until(cluster.whole)
    before = story.acknowledged()
    story.send(A)
    assert story.acknowledged() > before
    story.until(cluster.whole)
    cluster.restore(cluster.nodes[A], marked=False)
    story.start(A)
    story.run(2_000)
    story.end()


def behind(story: Story) -> None:
    """B, which lacks what A and C have, is promoted with the promise of C."""
    story.apart((A, B))
    story.run()
    before = story.acknowledged()
    story.send(A)
    assert story.acknowledged() > before
    story.apart((A, B), (A, C))
    story.run()
    story.promote(B)
    story.end()


def alone(story: Story) -> None:
    """The master is isolated, and takes messages; then B is promoted."""
    story.apart((A, B), (A, C))
    story.send(A)
    story.promote(B)
    story.end()


def its_own_end(story: Story) -> None:
    """The old master returns with messages that no other member has, and is promoted again."""
    story.apart((A, B), (A, C))
    story.send(A)
    story.promote(B)
    story.send(B)
    story.cluster.heal()
    story.run(2_000)
    story.apart((A, B), (B, C))
    story.promote(A)
    story.end()


def shown_by_a_slave(story: Story) -> None:
    """Two must acknowledge: B has what C has not, and shows it; then C is promoted."""
    story.apart((A, C))
    story.send(A)
    story.cluster.pull(story.cluster.nodes[B])
    story.apart((A, B), (A, C), (B, C))
    story.promote(C)
    story.end()


def removed_while_cut_off(story: Story) -> None:
    """B is promoted while A, the master, is cut off, and removes it: a cluster of one, and k is 0.
    A hears of the members before it steps down."""
    cluster = story.cluster
    story.apart((A, B))
    story.promote(B)
    story.send(A)
    left = cluster.nodes[B].log
    assert left is not None and left.membership.members is not None
    left.membership.put(left.membership.members.without(str(A)), str(B), lambda error: None)
    story.run()
    cluster.heal()
    story.run()
    old = cluster.nodes[A].log
    assert old is not None and old.membership.members == left.membership.members
    cluster.pull(cluster.nodes[A])
    story.end()


def admitted_by_a_master_that_was_replaced(story: Story) -> None:
    """C is removed while it is away. B is promoted while A, the master, is cut off from it; A takes
    C in again, which joined by the list from before its removal."""
    cluster = story.cluster
    story.stop(C)
    story.run(2_000)  # A misses its reports
    cluster.remove(cluster.nodes[A], str(C))
    left = cluster.nodes[B].log
    assert left is not None
    story.until(lambda: not left.membership.members.is_active(str(C)))
    story.apart((A, B), (B, C))
    story.promote(B)
    cluster.admit(cluster.nodes[A], str(C))
    story.run()
    story.start(C)
    for _ in range(3):
        cluster.send(cluster.nodes[A])
        story.run(200)
    story.end()


def succeeded_by_one_that_lacks_something(story: Story) -> None:
    """A and C have what B lacks. A's agent ends its lead for B, which A alone hears then."""
    cluster = story.cluster
    story.apart((A, B))
    story.run()
    before = story.acknowledged()
    story.send(A)
    assert story.acknowledged() > before
    story.apart((A, C), (B, C))
    cluster.nodes[A].end_lead()
    cluster.promote(cluster.nodes[B], succeeds=str(A))
    story.run(1_500)
    if cluster.nodes[A].lead_ended:
        cluster.nodes[A].lead_again()
    story.end()


def promised_and_unreadable(story: Story) -> None:
    """B promises C a term, its role.json rots, and it is promoted with the promise of A; neither
    hears C, which is the master of the higher term."""
    cluster = story.cluster
    story.apart((A, B), (A, C))
    cluster.promote(cluster.nodes[C])
    story.until(lambda: cluster.nodes[C].is_master)
    story.apart((A, C), (B, C))
    story.stop(B)
    cluster.nodes[B].disk.rot(ROLE_PATH, 2, b"\xff\xff")
    story.start(B)
    story.run()
    story.stop(A)
    story.start(A)
    story.promote(B)
    story.run()
    story.send(B)
    story.end()


# --- the rules, switched off ---


def _no_quorum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Members, "quorum", property(lambda self: 1))


class _AnySlot(int):
    """Every member's."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def _shared_terms(patch: pytest.MonkeyPatch) -> None:
    for module in (promotion, peer_policy):
        patch.setattr(module, "next_term", lambda known, slot: known + 1)
    for module in (membership, role_change, peer_policy):
        patch.setattr(module, "slot_of", _AnySlot)


def _old_terms(patch: pytest.MonkeyPatch) -> None:
    """Neither the slave refuses, nor its log the cut, nor the bytes."""
    refusal = cutting.Cutting._refusal
    patch.setattr(slave_data, "term_of", lambda number: GREATEST_TERM)
    patch.setattr(slave_agreement, "refusal_to_follow", lambda *_: "")
    patch.setattr(
        cutting.Cutting,
        "_refusal",
        lambda self, cut: refusal(self, replace(cut, generations=())),
    )


def _every_connection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slaves, "_counts_as", lambda self, peer, members: (peer, ""))
    patch.setattr(Slaves, "older", lambda self, peer: [])


def _no_rejoining(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership.Membership, "rejoining", property(lambda self: False))


def _rejoined_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Joining, "has_joined", lambda self, own, answers, safe: own.rejoining and not own.is_master
    )


def _admitted_by_its_word(patch: pytest.MonkeyPatch) -> None:
    """Nobody confirms the master, and the slave itself says whether it counts, once for all."""
    patch.setattr(
        keeper,
        "with_member",
        lambda own, name, _, configured, required: own.members.admitting(
            own.members.find(name), required
        ),
    )
    patch.setattr(Slaves, "_not_counted", lambda _, has, __: "" if not has.rejoining else "not yet")
    patch.setattr(
        Keeper,
        "adopt",
        lambda _, node, new: node.log.membership.put(new, node.address, node.change()),
    )


def _counts_the_succeeded(patch: pytest.MonkeyPatch) -> None:
    """Its promise is waited for, and counts. The second line, what is known to be confirmed, does
    not hold either."""
    ask, assess = promotion_steps._ask_for_promises, promotion_steps.assess
    candidacy, usable = promotion._Candidacy, promotion.usable
    patch.setattr(promotion_steps, "_ask_for_promises", lambda _: ask(""))
    patch.setattr(promotion, "_Candidacy", lambda *given: candidacy(*given[:3], ""))
    patch.setattr(
        promotion_steps,
        "assess",
        lambda own, *given, **named: assess(replace(own, confirmed=0), *given, **named),
    )
    patch.setattr(
        promotion,
        "usable",
        lambda own, answers: [(one, replace(s, confirmed=0)) for one, s in usable(own, answers)],
    )


def _removal_not_learned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership.Membership, "removed", property(lambda self: False))


def _counts_all_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership.Membership, "forget_joined", lambda self: None)


def _no_longer_history(patch: pytest.MonkeyPatch) -> None:
    for module in (master_agreement, history, peer_policy):
        patch.setattr(module, "longer_end", lambda *_, **__: None)


def _no_comparison(patch: pytest.MonkeyPatch) -> None:
    """Neither of reach nor, the second line, with what others know to be confirmed."""
    usable = promotion.usable
    patch.setattr(promotion, "_has_more", lambda own, theirs: False)
    patch.setattr(
        promotion,
        "usable",
        lambda own, answers: [(one, replace(s, confirmed=0)) for one, s in usable(own, answers)],
    )


def _no_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replicas, "replicated", lambda self, appended, *_: appended)


def _no_thought(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(promotion_steps, "assess", lambda *_, **__: Assessment())


def _no_cut(patch: pytest.MonkeyPatch) -> None:
    judge = master_agreement.judge

    def blind(master: history.History, has: SlaveOpening, **more: object) -> MasterAnswer:
        keeps = judge(master, has, **more)
        kept = min(has.end, master.end)
        return replace(keeps, cut_to=kept) if keeps.verdict is Verdict.KEEP else keeps

    patch.setattr(master_agreement, "judge", blind)


def _shows_all(patch: pytest.MonkeyPatch) -> None:
    """What a slave shows is what it has."""
    limit = HighWaterMark._limit
    patch.setattr(
        HighWaterMark,
        "_limit",
        lambda self: self.offsets.flushed if self.states.now.is_slave else limit(self),
    )


@dataclass(frozen=True, slots=True)
class Case:
    """`broken`: what the story comes to without the rule."""

    rule: str
    brokers: int
    required: int
    story: Callable[[Story], None]
    switch_off: Callable[[pytest.MonkeyPatch], None]
    broken: str


CASES = (
    Case("n − k promises", 3, 1, cut_off_from_both, _no_quorum, "lost"),
    Case("terms of one member", 3, 2, two_candidates, _shared_terms, "term"),
    Case("no master of a lower term", 3, 1, promised_and_gone_back, _old_terms, "lost"),
    Case("one member counts once", 3, 2, half_open, _every_connection, "lost"),
    Case("a restored disk counts for nothing", 2, 1, restored_and_promoted, _no_rejoining, "lost"),
    Case("until others were heard", 3, 1, promised_and_forgotten, _rejoined_at_once, "lost"),
    Case("a longer history", 2, 1, put_back_without_a_word, _no_longer_history, "lost"),
    Case("the greatest reach", 3, 1, behind, _no_comparison, "lost"),
    Case("objections", 3, 1, behind, _no_thought, "lost"),
    Case("k acknowledgements", 3, 1, alone, _no_acknowledgement, "lost"),
    Case("one history", 3, 1, its_own_end, _no_cut, "slave"),
    Case(
        "a removed master confirms nothing",
        2,
        1,
        removed_while_cut_off,
        _removal_not_learned,
        "seen",
    ),
    Case(
        "a member counts by its master's list",
        3,
        1,
        admitted_by_a_master_that_was_replaced,
        _admitted_by_its_word,
        "lost",
    ),
    Case(
        "who is succeeded promises nothing",
        3,
        1,
        succeeded_by_one_that_lacks_something,
        _counts_the_succeeded,
        "lost",
    ),
    Case("an unreadable promise", 3, 1, promised_and_unreadable, _counts_all_the_same, "lost"),
    Case("what slaves show", 3, 2, shown_by_a_slave, _shows_all, "seen"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_the_story_ends_well(case: Case):
    case.story(Story(case.brokers, case.required))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_without_the_rule_it_does_not(case: Case, monkeypatch: pytest.MonkeyPatch):
    stories = [Story(case.brokers, case.required, seed) for seed in SEEDS]
    case.switch_off(monkeypatch)
    assert case.broken in {broken for story in stories if (broken := violation(case, story))}


def violation(case: Case, story: Story) -> str:
    """The rule that does not hold in the end, "" when all do."""
    try:
        case.story(story)
    except Violation as found:
        return found.rule
    return ""


def test_a_member_is_readmitted_beside_another_alone():
    story = Story(2, 1)
    cluster, master = story.cluster, story.cluster.nodes[A]
    story.stop(B)
    story.run(2_000)  # A misses its reports
    cluster.remove(master, str(B))
    story.until(lambda: master.promotion is None and not cluster.least_required())
    cluster.admit(master, str(B))
    story.until(lambda: len(cluster.members_of(master)) == 2)
    assert cluster.least_required() == 0, "by the list from before, which is not forgotten yet"
    assert episodes.readmit(cluster, master) == "no master, or not so many members"


@pytest.mark.parametrize(
    ("episode", "switch_off"),
    [(episodes.readmit, _admitted_by_its_word), (episodes.relieve, _counts_the_succeeded)],
)
def test_an_episode_of_the_trial_loses_nothing_but_without_its_rule(
    episode: Callable[[Cluster, Node], str],
    switch_off: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
):
    """Chance decides everything within it, also whether it comes to what the rule is for."""

    def loses(seed: int) -> bool:
        story = Story(3, 1, seed)
        try:
            episode(story.cluster, story.cluster.nodes[A])
            story.end()
        except Violation as found:
            return found.rule == "lost"
        return False

    assert not any(map(loses, range(6)))
    switch_off(monkeypatch)
    assert any(map(loses, range(60)))
