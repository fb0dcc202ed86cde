"""Each rule of the architecture's section 3, switched off in the simulated broker: it is found out.

A simulation that passes without the rules proves nothing with them. Each rule names the kind of
promise whose breach shows that it is off, seeds that show it, and the profile in which they do:
with the rule on the same seeds pass. `more` bounds the search for another seed, should a change of
the engines have moved what the known ones meet.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from stratamq_commitlog.recovery import opening, own_state
from stratamq_commitlog.recovery.log_walk import SegmentWalk
from stratamq_commitlog.replica.follow_hub import FollowHub, Session
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_torture.simulated.rooms import ROOMS
from stratamq_torture.simulated.simulation import Outcome, Simulation
from stratamq_torture.simulated.trial import Workload
from stratamq_torture.simulated.world import ASYNC, SYNC, Profile, Sizes, standard

from stratamq.files.simulated_files import SimulatedFile, SimulatedFiles
from stratamq.files.simulated_inode import Inode
from stratamq.follow.fold import FoldPlace

Patch = pytest.MonkeyPatch
OPERATIONS = 80
MORE_SEEDS = 100
ALIKE = Sizes(bodies=(40,), odd=0, alike=True)


OVERGROWN = Profile(
    weights={"overgrow": 20, "power_loss": 8, "rocketmq": 0}, flush=(ASYNC,), sizes=ALIKE
)
"""The log often loses its tail under followers that live on."""
PAGES = 4
LARGE = 4096 * PAGES


@dataclass(frozen=True)
class Rule:
    """Shown by seeds of a profile, or, where chance would need too long, by a script."""

    switch_off: Callable[[Patch], None]
    finds: frozenset[str]
    """Rules of the checker, any of which may be the one that notices."""
    seeds: Sequence[int] = ()
    profile: Profile = field(default_factory=Profile)
    script: Callable[[Workload], None] | None = None


def run(rule: Rule, seed: int) -> Outcome:
    return Simulation(seed, rule.profile).run(OPERATIONS)


def play(rule: Rule) -> Outcome:
    workload = Workload(rule.profile)

    def whole() -> None:
        assert rule.script is not None
        workload.begin()
        rule.script(workload)
        workload.simulation.finish()

    return workload.simulation.guarded(whole)


# --- scripts ---


def large(flush: str) -> Profile:
    """Segments of several pages, and nothing is flushed before its time."""
    settings = standard(flush=flush, segment_bytes=LARGE, flush_interval_ms=3_600_000)
    return Profile(settings=settings, sizes=ALIKE, audits=False)


def a_hole_in_the_middle(workload: Workload) -> None:
    """Of what was not flushed the power takes one page; what is written next ends where a frame
    behind that page begins."""
    broker = workload.broker
    for _ in range(60):
        workload.do("put")
    broker.power_loss(lambda item: item.kind != "page" or item.page != 1)
    for name in ROOMS:
        broker.start(name)
    for _ in range(30):
        workload.do("put")
        workload.do("restart_log")


def accepted_after_a_failed_flush(workload: Workload) -> None:
    """The pages in front of the end were clean, and not on the disk."""
    workload.broker.disk.fail("flush", "commitlog/*")
    for _ in range(50):
        workload.put()
    workload.settle()
    workload.restart_log()
    workload.power_nothing()


def seen_before_it_was_flushed(workload: Workload) -> None:
    workload.put()
    workload.follow_alone()
    workload.pull()
    workload.power_nothing()


# --- the log ---


def answer_at_once(patch: Patch) -> None:
    patch.setattr(GroupCommit, "wait", lambda self, end, resolve: resolve(True))


def ask_again(patch: Patch) -> None:
    patch.setattr(GroupCommit, "_failed", lambda self, error: self._start())


def store_all_in_one(patch: Patch) -> None:
    def publish(self: Appender, source: bytes | memoryview) -> bool:
        active = self._segments.active
        active.file.write(self.appended - active.base, source)
        return True

    patch.setattr(Appender, "_publish", publish)


def do_not_zero(patch: Patch) -> None:
    patch.setattr(SimulatedFile, "zero", lambda self, position, length: None)


def do_not_write_again(patch: Patch) -> None:
    step = SegmentWalk.step
    patch.setattr(SegmentWalk, "step", lambda self, rewrite=None: step(self, None))


def create_without_sync(patch: Patch) -> None:
    create = SimulatedFiles.create

    def made(self: SimulatedFiles, path: str, size: int, *, sparse: bool = False) -> None:
        if not path.startswith("commitlog/"):
            create(self, path, size, sparse=sparse)
            return
        self.make_directory("commitlog")
        inode = Inode(path, self.disk.now_ns())
        inode.set_size(size, sparse=False)
        self.disk.tree.set(path, inode, self.disk.now_ns())

    patch.setattr(SimulatedFiles, "create", made)


# --- generations ---


def open_no_generation(patch: Patch) -> None:
    begin = opening.begin_generation

    def first_only(state, opened, random, role):
        known = state.generations if opened.history_known else []
        return known or begin(state, opened, random, role)

    patch.setattr(opening, "begin_generation", first_only)


def forget_generations(patch: Patch) -> None:
    """Every other start keeps its list to itself."""
    store_generations = own_state.OwnState.store_generations
    starts = itertools.count()

    def remember(self, generations, segment_bytes):
        if next(starts) % 2 == 0:
            store_generations(self, generations, segment_bytes)
        self.generations, self.segment_bytes = generations, segment_bytes

    patch.setattr(own_state.OwnState, "store_generations", remember)


def cut_no_follower(patch: Patch) -> None:
    """The log accepts a follower's position up to its confirmed end, of any history."""
    patch.setattr(
        FollowHub,
        "_cut_to",
        lambda self, generation, position: max(
            self.offsets.minimum, min(position, self.offsets.confirmed)
        ),
    )


# --- followers ---


def dispatch_everything(patch: Patch) -> None:
    patch.setattr(Session, "_horizon", lambda self: self._hub.offsets.appended)


def no_limit(holder: type) -> Callable[[Patch], None]:
    """The follower takes everything for flushed."""

    def switch_off(patch: Patch) -> None:
        everything = property(lambda self: 1 << 60, lambda self, value: None)
        patch.setattr(holder, "flushed", everything, raising=False)

    return switch_off


RULES: dict[str, Rule] = {
    "an acknowledgement comes after the flush": Rule(
        answer_at_once, frozenset({"lost", "rocketmq"}), (1, 6, 7), Profile(flush=(SYNC,))
    ),
    "a failed flush is never retried": Rule(
        ask_again,
        frozenset({"lost", "rocketmq"}),
        (3, 8, 10),
        Profile(weights={"flush_fails": 20}, flush=(SYNC,)),
    ),
    "publish order": Rule(
        store_all_in_one,
        frozenset({"half"}),
        (0, 3, 4),
        Profile(
            weights={"crash_point": 30},
            kinds=("batch", "together"),
            crash_points=(("write", "commitlog/*"),),
            power=0,
        ),
    ),
    "the tail is zeroed": Rule(
        do_not_zero,
        frozenset({"phantom"}),
        profile=large(ASYNC),
        script=a_hole_in_the_middle,
    ),
    "the tail is zeroed, audited": Rule(do_not_zero, frozenset({"tail"}), (9, 16, 24)),
    "pages are written again after an error": Rule(
        do_not_write_again,
        frozenset({"lost", "rocketmq"}),
        profile=large(SYNC),
        script=accepted_after_a_failed_flush,
    ),
    "segments are durable before use": Rule(
        create_without_sync, frozenset({"lost", "rocketmq", "start"}), (2, 8, 10)
    ),
    "every start opens a generation": Rule(
        open_no_generation,
        frozenset({"queue", "query", "pull", "follow", "seen"}),
        (0, 2, 3),
        OVERGROWN,
    ),
    "generations are durable first": Rule(
        forget_generations,
        frozenset({"queue", "query", "pull", "follow", "seen"}),
        (17, 20, 38),
        OVERGROWN,
    ),
    "cut_to": Rule(
        cut_no_follower,
        frozenset({"queue", "query", "pull", "follow", "seen"}),
        (0, 2, 3),
        OVERGROWN,
    ),
    "dispatch only up to confirmed": Rule(
        dispatch_everything,
        frozenset({"lost", "rocketmq"}),
        profile=large(SYNC),
        script=seen_before_it_was_flushed,
    ),
    "no queue file above flushed": Rule(
        no_limit(FoldPlace), frozenset({"ahead"}), (0, 1, 2), Profile(flush=(ASYNC,))
    ),
    "no index file above flushed": Rule(
        no_limit(FoldPlace), frozenset({"ahead"}), (0, 1, 13), Profile(flush=(ASYNC,))
    ),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_with_the_rule_nothing_is_found(rule):
    if rule.script is not None:
        assert play(rule).violation is None
    for seed in rule.seeds:
        assert run(rule, seed).violation is None


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_without_the_rule_the_simulation_finds_it(rule, monkeypatch):
    rule.switch_off(monkeypatch)
    if rule.script is not None:
        violation = play(rule).violation
        assert violation is not None and violation.rule in rule.finds
        return
    for seed in (*rule.seeds, *range(MORE_SEEDS)):
        violation = run(rule, seed).violation
        if violation is not None and violation.rule in rule.finds:
            return
    pytest.fail(f"{len(rule.seeds) + MORE_SEEDS} seeds, and no check failed")
