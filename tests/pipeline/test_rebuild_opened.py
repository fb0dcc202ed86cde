"""Rebuilt queues and index files under the real RocketMQ: its report is that for its own files."""

import shutil
from pathlib import Path

import pytest
from stratamq_pipeline.rebuild.job import RebuildOptions, run_rebuild

from tests.compatibility.asking import comparable
from tests.compatibility.explanations import explanations
from tests.compatibility.judge import judge
from tests.compatibility.scans import Question
from tests.compatibility.table import allowed_rows
from tests.pipeline.job_stores import HERE, PART_BYTES, sizes
from tests.support import rocketmq
from tests.support.fixtures import ALL_STORES, CRASHED_STORES, expected, unpack

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

KINDS = ("store", "frame", "message", "queue", "filtered", "pull")


def test_rocketmq_answers_from_a_rebuild_as_from_its_own(spark, tmp_path, subtests):
    """Of every store, in one session of Spark, which takes longer to start than to rebuild one."""
    for name in ALL_STORES:
        with subtests.test(name):
            place = tmp_path / name
            place.mkdir()
            judge_rebuild(name, place)


def judge_rebuild(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    run_rebuild(
        RebuildOptions(
            str(root), str(tmp_path / "out"), geometry=sizes(root), part_bytes=PART_BYTES
        ),
        HERE,
    )
    for made in ("consumequeue", "index"):
        shutil.rmtree(root / made)
        (tmp_path / "out" / made).rename(root / made)
    # After a crash RocketMQ would dispatch the end of its log again, and it is all there.
    (root / "abort").unlink(missing_ok=True)
    version = name.partition("-")[0]
    ours = [comparable(line) for line in rocketmq.dump(version, root, tmp_path / "dump")]
    theirs = [comparable(line) for line in expected(name)]

    explained = explanations(allowed_rows(name), name, ours, theirs)
    verdict = judge(theirs, ours, KINDS, explained)
    assert not verdict.complaint(), verdict.complaint()
    assert verdict.compared["message"] > 100
    assert set(verdict.rows_met) <= {"delay-units-after-a-crash"}
    same_files = name.startswith("4.") and name not in CRASHED_STORES
    before, now = queries(theirs, same_files), queries(ours, same_files)
    assert len(before) > 100
    assert now == before


def queries(lines, same_files):
    """Offsets by question; those about tags, which 5.4 and later index, are left out.

    Where items are in other files than RocketMQ's (it has some twice after a crash, and tags since
    5.4), answers about a moment depend on them: then those about all times are looked at, as sets.
    """
    asked = [(Question.of(line), line["phyOffsets"]) for line in lines if line["kind"] == "query"]
    return {
        str(question): found if same_files else sorted(set(found))
        for question, found in asked
        if not question.of_tag and (same_files or question.of_all_times)
    }
