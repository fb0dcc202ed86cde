"""Jobs on a cluster whose workers have disks of their own, and on file systems that are not local.

Four JVMs on two cores take their time; nothing here is about speed. All tests ask one cluster, by
one driver: each has directories of its own.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipeline.cluster import (
    SETTINGS,
    START_SECONDS,
    cluster,
    obstacle,
)
from tests.pipeline.job_runs import RunJobs, driver
from tests.pipeline.job_stores import PART_BYTES, built_by_services, files_below, sizes
from tests.pipeline.test_export import rows, scanned
from tests.pipeline.test_offload import content
from tests.pipeline.tiers import uploaded
from tests.support.fixtures import unpack

JOB_SECONDS = 900
pytestmark = [pytest.mark.spark, pytest.mark.timeout(JOB_SECONDS + 3 * START_SECONDS)]
own_disks = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "it can run here")


@dataclass(frozen=True)
class Workers:
    """Two workers of one core. `half_seen` is what the driver sees for one of them, and an empty
    disk for the other; what is unseen is an empty disk for both."""

    run_jobs: RunJobs
    half_seen: Path
    unseen: Path
    unseen_store: Path
    unseen_tier: Path


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    place = tmp_path_factory.mktemp("cluster")
    half_seen, unseen, unseen_tier = (
        place / name for name in ("half-seen", "unseen", "unseen-tier")
    )
    for directory in (half_seen, unseen, unseen_tier):
        directory.mkdir()
    unseen_store = unpack("4.9.8-small-clean", place)
    hidden = (unseen, unseen_store, unseen_tier)
    with (
        cluster(place, hidden=((half_seen, *hidden), hidden)) as master,
        driver(place, master, SETTINGS) as run_jobs,
    ):
        yield Workers(run_jobs, half_seen, unseen, unseen_store, unseen_tier)


def jobs_on(root: Path, out: str, faults: str, rebuilt: str):
    """An export, an audit and a rebuild of one store."""
    geometry_of_files = dataclasses.astuple(sizes(root))
    shared = {"log": str(root), "part_bytes": PART_BYTES}
    return [
        ("export", {**shared, "out": out}),
        ("audit", {**shared, "out": faults, "geometry": geometry_of_files}),
        ("rebuild", {**shared, "out": rebuilt, "geometry": geometry_of_files}),
    ]


@own_disks
def test_workers_with_disks_of_their_own_publish_nothing(workers, tmp_path):
    """One worker of two is enough; on a directory that all share the same jobs then succeed. Where
    the test is left out, as for a worker that comes after it, the count of rows refuses."""
    root = unpack("4.9.8-small-clean", tmp_path)
    expected = built_by_services("4.9.8-small-clean", tmp_path / "services")
    apart, away, shared = workers.half_seen, workers.unseen, tmp_path

    def jobs(place: Path):
        return jobs_on(root, *(str(place / name) for name in ("out", "faults", "rebuilt")))

    untested = [(name, {**given, "untested": True}) for name, given in jobs(away)]
    results = workers.run_jobs([*jobs(apart), *jobs(shared), *untested])
    refused, done, counted = results[:3], results[3:6], results[6:]
    for result in counted:
        assert result.get("error") == "InvalidRequestError", result
        assert str(away) in result["message"]
    assert not [path for path in away.rglob("*") if path.name == "00000001.json"]
    assert not (away / "faults").exists()
    assert not (away / "rebuilt").exists()
    for result in refused:
        assert result.get("error") == "InvalidRequestError", result
        assert str(apart) in result["message"]
        assert "all workers" in result["message"]
    assert list(apart.iterdir()) == []
    assert [result["out"] for result in done[::2]] == [str(shared / "out"), str(shared / "rebuilt")]
    assert rows(shared / "out") == scanned(root)
    assert done[0]["messages"] == len(scanned(root))
    assert done[1]["faults"] == pq.read_table(shared / "faults").num_rows == 0
    assert files_below(shared / "rebuilt", "consumequeue", "index") == expected


@own_disks
def test_a_log_that_workers_do_not_see_is_refused(workers, tmp_path):
    other = unpack("4.9.8-crash", tmp_path)
    made = [str(tmp_path / name) for name in ("out", "faults", "rebuilt")]
    results = workers.run_jobs(
        [
            *jobs_on(workers.unseen_store, *made),
            ("export", {"log": str(other), "out": str(tmp_path / "other")}),
        ]
    )
    for result in results[:3]:
        assert result.get("error") == "InvalidRequestError", result
        assert "does not see" in result["message"]
    assert not list(tmp_path.glob("out/topic=*"))
    assert not list(tmp_path.glob("rebuilt"))
    assert results[3]["messages"] == len(scanned(other))


@own_disks
def test_a_tier_is_written_and_verified_where_all_workers_see_it(workers, tmp_path):
    """A worker with a disk of its own ends both jobs, whatever it was given to do."""
    store = unpack("5.5.1-small-clean", tmp_path)
    apart, shared = workers.unseen_tier, tmp_path
    uploaded(store, apart / "seen")
    given = {"log": str(store), "part_bytes": PART_BYTES}
    jobs = [
        ("offload", {**given, "to": str(apart / "tier")}),
        ("verify-tier", {"tier": str(apart / "seen")}),
        ("offload", {**given, "to": str(shared / "tier")}),
        ("verify-tier", {**given, "tier": str(shared / "tier")}),
        ("offload", {**given, "to": str(shared / "tier")}),
    ]
    *refused, done, verified, again = workers.run_jobs(jobs)
    for result in refused:
        assert result.get("error") == "InvalidRequestError", result
        assert "does not see the tier" in result["message"]
    assert done["messages_added"] == verified["messages"] == verified["in_both"] == 300, done
    assert verified["faults"] == again["messages_added"] == 0
    assert content(shared / "tier") == content(apart / "seen")
