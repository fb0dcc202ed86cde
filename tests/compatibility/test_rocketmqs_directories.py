"""Directories that RocketMQ wrote, opened by our services, which must report what it reported.

Every store is opened as it is, clean ones also after something was done to them: of these the
commit chooses some. Which answers may differ is written in `docs/compatibility.md` and nowhere
else.
"""

from pathlib import Path

import pytest

from tests.compatibility import openings
from tests.compatibility.asking import (
    comparable,
    judge_queries,
    judge_times,
    only_index,
    time_question,
    without_index,
    without_length,
)
from tests.compatibility.explanations import explanations
from tests.compatibility.judge import judge
from tests.compatibility.scans import (
    BOUNDARIES,
    LogScan,
    Question,
    ask,
    items_on_disk,
    wrong_queries,
    wrong_tag_queries,
    wrong_times,
)
from tests.compatibility.table import expected_rows
from tests.support.answers import answers, index_lines_on_disk, placed_frames
from tests.support.brokers import Broker, geometry_settings
from tests.support.fixtures import (
    ALL_STORES,
    CLEAN_STORES,
    CRASHED_STORES,
    expected,
    geometry,
    unpack,
)
from tests.support.sampling import few

MAX_STORES = 5
MAX_CHANGED = 5
EQUAL_KINDS = ("recovery", "store", "frame", "message", "queue", "filtered", "pull")


OPENINGS = [*few(ALL_STORES, MAX_STORES), *few(openings.CHANGED, MAX_CHANGED)]


@pytest.mark.parametrize("opening", OPENINGS)
def test_a_broker_answers_as_rocketmq_did(opening, tmp_path, subtests):
    store, change = openings.split(opening)
    root = unpack(store, tmp_path)
    index_before = index_contents(root)
    change(root)
    sizes = geometry(root)
    theirs = [comparable(line) for line in expected(store)]
    rows = expected_rows(opening)
    kinds = EQUAL_KINDS if store in CRASHED_STORES else (*EQUAL_KINDS, "index")
    with Broker(root, tmp_path / "logs", geometry_settings(sizes)) as broker:
        broker.start()
        ours = answers(broker)
        scan = LogScan(placed_frames(broker))
        questions = [Question.of(line) for line in theirs if line["kind"] == "query"]
        newest, oldest = ask(broker, questions, False), ask(broker, questions, True)
        rows_met: set[str] = set()

        asked = [time_question(line) for line in theirs if line["kind"] == "time"]
        assert len(asked) > 500
        for boundary in BOUNDARIES if opening == store else ():
            with subtests.test("offsets by time are those of a linear scan", boundary=boundary):
                assert wrong_times(broker, ours, asked, boundary) == []
        with subtests.test("offsets by time are RocketMQ 5's"):
            rows_met |= judge_times(broker, store, theirs)
        with subtests.test("queries by key are those of a linear scan"):
            assert len(questions) > 500
            assert wrong_queries(questions, newest, scan, oldest_first=False) == []
            assert wrong_queries(questions, oldest, scan, oldest_first=True) == []
        broker.stop()

        with subtests.test("every line is RocketMQ's or a row explains it"):
            reported = without_index(ours) + index_lines_on_disk(root)
            verdict = judge(theirs, reported, kinds, explanations(rows, opening, reported, theirs))
            rows_met |= set(verdict.rows_met)
            assert not verdict.complaint(), verdict.complaint()
            assert verdict.compared["frame"] > 100
        with subtests.test("the index reports what is on the disk"):
            assert without_length(index_lines_on_disk(root)) == only_index(ours)
        if store in CLEAN_STORES and not has_lost_its_tags(opening):
            with subtests.test("index files are RocketMQ's byte for byte, rebuilt ones too"):
                assert index_contents(root) == index_before
        with subtests.test("the index holds every key of the log once and in order"):
            items = items_on_disk(root, sizes, scan)
            assert items.keys == scan.items()
        with subtests.test("tag keys are found where RocketMQ indexed them"):
            assert wrong_tag_queries(questions, newest, scan, items.tag_places) == []
        with subtests.test("queries by key are RocketMQ's"):
            met, wrong = judge_queries(theirs, questions, newest, items.tag_places)
            rows_met |= met
            assert wrong == []
        with subtests.test("rows of docs/compatibility.md that should show do, and no others"):
            assert rows_met == rows
        with subtests.test("a clean stop leaves no abort"):
            assert not (root / "abort").exists()
        if opening == store:
            with subtests.test("opened again it gives the same answers"):
                broker.start()
                assert answers(broker) == ours
                broker.stop()


def index_contents(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def has_lost_its_tags(opening: str) -> bool:
    """Items of tags, which 5.5.1 writes, are not written here."""
    return opening.startswith("5.") and opening.endswith("+no-index")


def test_a_broker_serves_each_store_from_copies_whose_times_were_kept(tmp_path):
    for store in ALL_STORES:
        root = unpack(store, tmp_path)
        newest = max(path.stat().st_mtime for path in root.glob("commitlog/*"))
        made = max(line["storeTimestamp"] for line in expected(store, "message")) / 1000
        assert abs(newest - made) < 3600, Path(store)
