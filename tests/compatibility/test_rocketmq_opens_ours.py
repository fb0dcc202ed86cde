"""Directories that our services wrote or changed, opened by the real RocketMQ.

RocketMQ's `dump` and our services must report the same for the same directory: clean or crashed,
ours, RocketMQ's that we continued, and ours that RocketMQ continued.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stratamq.client import connect
from stratamq.formats.file_names import offset_name
from stratamq.formats.frame_layout import BLANK, FIXED_BYTES_WITHOUT_HOSTS
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from tests.compatibility.asking import comparable, judge_queries, judge_times, without_index
from tests.compatibility.explanations import explanations
from tests.compatibility.judge import Line, judge
from tests.compatibility.scans import Answer, LogScan, Question, ask, items_on_disk
from tests.compatibility.table import allowed_rows
from tests.compatibility.workload import EVERY_EDGE, Workload
from tests.support import rocketmq
from tests.support.answers import answers, index_lines_on_disk, placed_frames
from tests.support.brokers import COMMITLOG, DISPATCHER, INDEX, ROOMS, Broker, geometry_settings
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
    steps: int = 220
    settings: tuple[str, ...] = (STORE_HOST,)
    born6: bool = False
    versions: tuple[str, ...] = VERSIONS
    sealed: bool = False
    """Every frame ends in a checksum of the whole record, which 5.5.1 verifies on request."""


ANYTHING = Scenario("rich")
VERIFYING = {"property_crc": True, "set": "forceVerifyPropCRC=true"}
SCENARIOS = {
    "small": Scenario("small", 320),
    "batches": Scenario("batches"),
    "rich": Scenario("rich"),
    "ipv6": Scenario("rich", 220, (STORE_HOST6,), born6=True),
    "checksum": Scenario("sealed", 300, born6=True, sealed=True),
    "no-checksum": Scenario("rich", settings=(STORE_HOST, "commitlog.property_checksum=false")),
    "long-topics": Scenario(
        "long_topics", 220, (STORE_HOST, "commitlog.write_v2=true"), versions=("5.5.1",)
    ),
}
KILLED_EARLY = {
    "followers-late": (DISPATCHER, INDEX),
    "no-dispatcher": (DISPATCHER,),
    "no-index": (INDEX,),
}
CRASHED = {
    "async": Scenario("rich", settings=(STORE_HOST, "commitlog.flush_disk_type=ASYNC_FLUSH")),
    "sealed-torn": replace(SCENARIOS["checksum"], versions=("5.5.1",)),
}


def broker_of(root: Path, sizes: Geometry, settings: Iterable[str] = (STORE_HOST,)) -> Broker:
    return Broker(root, root.parent / "logs", [*geometry_settings(sizes), *settings])


def fresh(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    rocketmq.geometry_file(root, SIZES)
    return root


def all_readers_agree(
    subtests: pytest.Subtests,
    root: Path,
    opening: str,
    scenario: Scenario = ANYTHING,
    *,
    clean: bool = True,
) -> None:
    """RocketMQ of each version on a copy, then our services on the directory itself."""
    sizes = geometry(root)
    dumps = {
        version: rocketmq.dump(
            version,
            root,
            root.parent / version,
            **VERIFYING if scenario.sealed and version >= "5" else {},
        )
        for version in scenario.versions
    }
    with broker_of(root, sizes, scenario.settings) as broker:
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
            queries_met, wrong = judge_queries(theirs, questions, found, tags)
            assert wrong == []
            assert verdict.rows_met.keys() | times_met | queries_met <= rows


def asked_of(
    broker: Broker, version: str, lines: list[Line]
) -> tuple[set[str], list[Question], list[Answer]]:
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
        workload.run(scenario.kind, scenario.steps)
        assert workload.edges == EVERY_EDGE
        broker.stop()
    assert not (root / "abort").exists()
    all_readers_agree(subtests, root, f"ours-{name}", scenario)
    if scenario.sealed:
        with subtests.test("a flipped bit in the properties is seen by RocketMQ, so it did look"):
            assert flipped_bit_is_seen(root)


def flipped_bit_is_seen(root: Path) -> bool:
    """By 5.5.1, when it is configured to verify the checksum of the whole record."""
    before = rocketmq.dump("5.5.1", root, root.parent / "before", **VERIFYING)
    path = min((root / "commitlog").iterdir())
    content = bytearray(path.read_bytes())
    content[content.index(b"UNIQ_KEY\x01") + 12] ^= 1
    path.write_bytes(content)
    after = rocketmq.dump("5.5.1", root, root.parent / "after", **VERIFYING)
    good = [sum(line.get("ok", False) for line in lines) for lines in (before, after)]
    return good[1] < good[0]


CRASHES = (
    "all-at-once",
    "log-first",
    "followers-late",
    "no-dispatcher",
    "no-index",
    "never-followed",
    "twice",
    "async",
    "torn",
    "sealed-torn",
)


@pytest.mark.parametrize("state", CRASHES)
def test_of_a_directory_we_crashed_on(state, tmp_path, subtests):
    """Every process is killed; the followers were behind, gone, never there, or cleanly stopped."""
    root, scenario = fresh(tmp_path), CRASHED.get(state, ANYTHING)
    with broker_of(root, SIZES, scenario.settings) as broker:
        broker.start((COMMITLOG,) if state == "never-followed" else ROOMS)
        Workload(broker, 22, pause_ms=20).run(scenario.kind, 120)
        if state == "twice":
            broker.kill_all()
            broker.start()
        else:
            broker.kill(*KILLED_EARLY.get(state, ()))
        workload = Workload(broker, 23, pause_ms=20)
        workload.run(scenario.kind, 120)
        if state == "log-first":
            broker.kill(COMMITLOG)
            broker.terminate(DISPATCHER)
            broker.terminate(INDEX)
        broker.kill_all()
    if "torn" in state:
        tear(root, workload.end, 300)
    assert (root / "abort").exists()
    all_readers_agree(subtests, root, f"ours-crashed-{state}", scenario, clean=False)


@pytest.mark.parametrize("end", ["clean", "crashed"])
def test_of_a_directory_whose_first_segments_we_deleted(end, tmp_path, subtests):
    """As the janitor has it done: the log, then queues and index below its minimum."""
    root = fresh(tmp_path)
    with broker_of(root, SIZES, (STORE_HOST, "commitlog.release_timeout_ms=0")) as broker:
        broker.start()
        Workload(broker, 26).run("rich", 240)
        client = connect(root, retry_timeout_s=60)
        state = client.log_state()
        for follower in (client.admin.dispatch_state, client.admin.index_state):
            while follower().durable_offset < state.appended_offset:
                pass
        below = state.appended_offset // 2
        while (minimum := client.admin.delete_below(below, max_segments=10)[0]) <= (
            below - SIZES.log_bytes
        ):
            pass
        last = root / "commitlog" / offset_name(minimum - SIZES.log_bytes)
        while last.exists() or not trimmed(root, minimum):
            pass  # files go some moments after the segment
        client.close()
        if end == "clean":
            broker.stop()
        else:
            broker.kill_all()
    all_readers_agree(subtests, root, f"ours-{end}-deleted", clean=end == "clean")


def trimmed(root: Path, minimum: int) -> bool:
    """Whether no queue has, in front of other files, one wholly below the log's minimum."""
    for queue in root.glob("consumequeue/*/*"):
        files = sorted(queue.iterdir())
        if len(files) > 1:
            try:
                last = files[0].read_bytes()[-QUEUE_UNIT_BYTES:]
            except FileNotFoundError:
                return False  # it has just gone
            if int.from_bytes(last[:8], "big") < minimum:
                return False
    return True


def tear(root: Path, end: int, count: int) -> None:
    """Zero the log's last bytes from a message's body on, as if their pages had never reached the
    disk: a tear in properties alone, which no checksum of RocketMQ's covers, it does not see."""
    base = end // SIZES.log_bytes * SIZES.log_bytes
    with (root / "commitlog" / f"{base:020d}").open("r+b") as file:
        raw = file.read(end - base)
        frame, following = 0, BLANK.unpack_from(raw)[0]
        while following <= max(0, len(raw) - count):
            frame, following = following, following + BLANK.unpack_from(raw, following)[0]
        begin = frame + FIXED_BYTES_WITHOUT_HOSTS + 16
        file.seek(begin)
        file.write(bytes(len(raw) - begin))


@pytest.mark.parametrize("store", ALL_STORES)
def test_of_a_directory_of_rocketmqs_that_we_continued_with(store, tmp_path, subtests):
    root = unpack(store, tmp_path)
    with broker_of(root, geometry(root)) as broker:
        broker.start()
        Workload(broker, 24).run("rich", 100)
        broker.stop()
    scenario = Scenario("rich", versions=("5.5.1",) if "v2" in store else VERSIONS)
    all_readers_agree(subtests, root, f"continued-{store}", scenario)


@pytest.mark.parametrize("end", ["clean", "crashed-too"])
@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_directory_that_went_back_and_forth(version, end, tmp_path, subtests):
    """RocketMQ's, then ours, then RocketMQ's, then ours again."""
    root, clean = fresh(tmp_path), end == "clean"
    rocketmq.write(version, root, tmp_path / "one", scenario="rich", seed=31, steps=60)
    with broker_of(root, SIZES) as broker:
        broker.start()
        Workload(broker, 25).run("rich", 60)
        if clean:
            broker.stop()
        else:
            broker.kill_all()
    crash = {} if clean else {"crash": True, "lose_after": 30, "torn": 300}
    rocketmq.write(version, root, tmp_path / "two", scenario="rich", seed=32, steps=60, **crash)
    all_readers_agree(subtests, root, f"back-and-forth-{end}", clean=clean)
