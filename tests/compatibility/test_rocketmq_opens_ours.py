"""Directories that our services wrote, or had their hands in, opened by the real RocketMQ.

RocketMQ's `dump` and our services must say the same of the same directory: of clean ones and of
crashed ones, of ours, of RocketMQ's that we went on with, and of ours that RocketMQ went on with.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compatibility.asking import comparable, judge_queries, judge_times, without_index
from tests.compatibility.explanations import explanations
from tests.compatibility.judge import judge
from tests.compatibility.scans import LogScan, Question, ask, items_on_disk
from tests.compatibility.table import allowed_rows
from tests.compatibility.workload import Workload
from tests.support import rocketmq
from tests.support.answers import answers, index_lines_on_disk, placed_frames
from tests.support.brokers import COMMITLOG, DISPATCHER, INDEX, Broker, geometry_settings
from tests.support.fixtures import ALL_STORES, Geometry, geometry, unpack
from tests.support.rocketmq import VERSIONS

pytestmark = pytest.mark.java

SIZES = Geometry(log_bytes=65_536, queue_units=8, slots=16, items=64)
KINDS = ("recovery", "store", "frame", "message", "queue", "filtered", "pull")
STORE_HOST = "commitlog.store_host=10.1.2.3:10911"
STORE_HOST6 = "commitlog.store_host=[2001:db8::10]:10911"


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is written, with which settings, and who can read it."""

    kind: str
    settings: tuple[str, ...] = (STORE_HOST,)
    born6: bool = False
    versions: tuple[str, ...] = VERSIONS
    dump_options: tuple[str, ...] = ()


SCENARIOS = {
    "small": Scenario("small"),
    "batches": Scenario("batches"),
    "rich": Scenario("rich"),
    "ipv6": Scenario("rich", (STORE_HOST6,), born6=True),
    "checksum": Scenario("sealed", (STORE_HOST, "commitlog.property_checksum=true"), born6=True),
    "long-topics": Scenario(
        "long_topics", (STORE_HOST, "commitlog.write_v2=true"), versions=("5.5.1",)
    ),
}


def broker_of(root: Path, sizes: Geometry, settings: Iterable[str] = (STORE_HOST,)) -> Broker:
    return Broker(root, root.parent / "logs", [*geometry_settings(sizes), *settings])


def fresh(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    rocketmq.geometry_file(root, SIZES)
    return root


def everyone_says_the_same(subtests, root, versions, opening, settings, *, clean, **options):
    """RocketMQ of each version on a copy, then our services on the directory itself."""
    sizes = geometry(root)
    dumps = {
        version: rocketmq.dump(version, root, root.parent / version, **options.get(version, {}))
        for version in versions
    }
    with broker_of(root, sizes, settings) as broker:
        broker.start()
        ours = answers(broker)
        scan = LogScan(placed_frames(broker))
        asked = {version: asked_of(broker, version, lines) for version, lines in dumps.items()}
        broker.stop()
    ours = without_index(ours) + index_lines_on_disk(root)
    tags = items_on_disk(root, sizes, scan).tag_places
    kinds = (*KINDS, "index") if clean else KINDS
    for version, lines in dumps.items():
        theirs = [comparable(line) for line in lines]
        rows = allowed_rows(f"{opening}@{version}")
        with subtests.test(version):
            verdict = judge(theirs, ours, kinds, explanations(rows, opening, ours, theirs))
            assert not verdict.complaint(), verdict.complaint()
            assert verdict.compared["frame"] > 100
            times_met, questions, found = asked[version]
            queries_met = judge_queries(theirs, questions, found, scan, tags)
            assert verdict.rows_met.keys() | times_met | queries_met <= rows


def asked_of(broker, version, lines):
    """RocketMQ's own questions about times and keys: rows met, and the answers by key."""
    questions = [Question.of(line) for line in lines if line["kind"] == "query"]
    return judge_times(broker, version, lines), questions, ask(broker, questions, False)


@pytest.mark.parametrize("name", SCENARIOS)
def test_of_a_directory_we_wrote(name, tmp_path, subtests):
    scenario = SCENARIOS[name]
    root = fresh(tmp_path)
    with broker_of(root, SIZES, scenario.settings) as broker:
        broker.start()
        workload = Workload(broker, 21, born6=scenario.born6)
        workload.run(scenario.kind, 220)
        assert workload.edges == {7, 8, 9}
        broker.stop()
    assert not (root / "abort").exists()
    everyone_says_the_same(
        subtests, root, scenario.versions, f"ours-{name}", scenario.settings, clean=True
    )


CRASHES = ("all-at-once", "log-first", "followers-late", "no-dispatcher", "no-index", "twice")


@pytest.mark.parametrize("state", CRASHES)
def test_of_a_directory_we_crashed_on(state, tmp_path, subtests):
    root = fresh(tmp_path)
    with broker_of(root, SIZES) as broker:
        broker.start()
        workload = Workload(broker, 22)
        workload.run("rich", 120)
        if state == "followers-late":
            broker.kill(DISPATCHER, INDEX)
        elif state == "no-dispatcher":
            broker.kill(DISPATCHER)
        elif state == "no-index":
            broker.kill(INDEX)
        elif state == "twice":
            broker.kill()
            broker.start()
            workload = Workload(broker, 23)
        workload.run("rich", 120)
        if state == "log-first":
            broker.kill(COMMITLOG)
            broker.terminate(DISPATCHER)
            broker.terminate(INDEX)
        broker.kill()
    assert (root / "abort").exists()
    everyone_says_the_same(subtests, root, VERSIONS, f"ours+{state}", (STORE_HOST,), clean=False)


@pytest.mark.parametrize("store", ALL_STORES)
def test_of_a_directory_of_rocketmqs_that_we_went_on_with(store, tmp_path, subtests):
    root = unpack(store, tmp_path)
    settings = [STORE_HOST]
    with broker_of(root, geometry(root), settings) as broker:
        broker.start()
        Workload(broker, 24).run("rich", 100)
        broker.stop()
    version = store[:5]
    everyone_says_the_same(subtests, root, (version,), f"continued-{store}", settings, clean=True)


@pytest.mark.parametrize("crash", [False, True], ids=["clean", "crash"])
@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_directory_that_went_back_and_forth(version, crash, tmp_path, subtests):
    """RocketMQ's, then ours, then RocketMQ's, then ours again."""
    root = fresh(tmp_path)
    rocketmq.write(version, root, tmp_path / "one", scenario="rich", seed=31, steps=60)
    with broker_of(root, SIZES) as broker:
        broker.start()
        Workload(broker, 25).run("rich", 60)
        if crash:
            broker.kill()
        else:
            broker.stop()
    options = {"crash": True} if crash else {}
    rocketmq.write(version, root, tmp_path / "two", scenario="rich", seed=32, steps=60, **options)
    everyone_says_the_same(
        subtests, root, VERSIONS, f"back-and-forth+{crash}", (STORE_HOST,), clean=not crash
    )
