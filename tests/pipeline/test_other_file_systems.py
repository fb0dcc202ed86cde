"""Jobs whose output is in a file system that is not `file:`: a view over a directory."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from stratamq_pipeline.jobs.output_files import local_output

from stratamq.errors import InvalidRequestError
from stratamq.files.real import RealFiles
from tests.dispatcher.followed_log import WrittenLog
from tests.pipeline.job_runs import RUN_SECONDS, driver
from tests.pipeline.job_stores import PART_BYTES
from tests.pipeline.test_export import rows, scanned


def view_of(disk: Path) -> dict[str, str]:
    """Settings: the default file system has the directory under the name /exports."""
    return {
        "spark.hadoop.fs.defaultFS": "viewfs://lab/",
        "spark.hadoop.fs.viewfs.mounttable.lab.link./exports": f"file://{disk}",
    }


@pytest.mark.spark
@pytest.mark.timeout(RUN_SECONDS)
def test_an_export_goes_to_the_default_file_system_and_nowhere_else(tmp_path):
    disk, store = tmp_path / "disk", tmp_path / "store"
    disk.mkdir()
    store.mkdir()
    log = WrittenLog(RealFiles(store))
    log.put_many(40)
    held = disk / "held" / "_exports"
    held.mkdir(parents=True)
    (held / "lock.held").write_text("worker-7, process 12")

    def export(out: str, **more):
        return ("export", {"log": str(store), "out": out, "part_bytes": PART_BYTES, **more})

    jobs = [
        export("/exports/one"),
        export("viewfs://lab/exports/one"),
        export("/exports/one", dry_run=True),
        ("audit", {"log": str(store), "out": "/exports/faults"}),
        ("rebuild", {"log": str(store), "out": "viewfs://lab/exports/rebuilt"}),
        export("/exports/held"),
        export("nothing://lab/exports/one"),
        export(f"file://{tmp_path}/local"),
    ]
    with driver(tmp_path, "local[2]", view_of(disk)) as run_jobs:
        first, again, dry, audit, rebuild, held, unknown, local = run_jobs(jobs)
    assert first["messages"] == 40
    assert first["out"] == "viewfs://lab/exports/one"
    assert rows(disk / "one") == scanned(store)
    assert sorted(path.name for path in (disk / "one" / "_exports").glob("[!.]*")) == [
        "00000001.json"
    ]
    manifest = json.loads((disk / "one" / "_exports" / "00000001.json").read_text())
    assert set(manifest["files"]) == {
        str(path.relative_to(disk / "one")) for path in (disk / "one").glob("topic=*/*/*.parquet")
    }
    assert again["result"] == "nothing new"
    assert (dry["begin_offset"], dry["end_offset"]) == (log.end, log.end)
    assert audit["faults"] == pq.read_table(disk / "faults").num_rows > 0
    assert rebuild["error"] == "InvalidRequestError"
    assert "mounted file system" in rebuild["message"]
    assert held["error"] == "BusyError"
    assert "worker-7, process 12" in held["message"]
    assert unknown["error"] == "InvalidRequestError"
    assert rows(tmp_path / "local") == scanned(store)
    assert local["out"] == str(tmp_path / "local")
    assert not Path("/exports").exists()


def test_what_workers_write_with_plain_system_calls_is_in_no_other_file_system():
    assert local_output("a").root == Path("a").absolute()
    assert local_output("/a/b").root == Path("/a/b")
    assert local_output("file:///a/b").root == Path("/a/b")
    assert local_output("file:/a/b").root == Path("/a/b")
    with pytest.raises(InvalidRequestError, match="mounted file system"):
        local_output("hdfs://namenode/a")
