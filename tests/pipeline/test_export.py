"""Each message is in an export exactly once, whatever stopped the runs that wrote it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from stratamq_pipeline.export import job as export_job
from stratamq_pipeline.export.job import ExportOptions, run_export
from stratamq_pipeline.export.manifest import ExportDirectory, ExportManifest, staged_name
from stratamq_pipeline.jobs import output_files
from stratamq_pipeline.jobs.output_files import LocalFiles

import stratamq
from stratamq.client import connect
from stratamq.errors import (
    BusyError,
    CorruptionError,
    InvalidRequestError,
    OffsetOutOfRangeError,
)
from stratamq.files.real import RealFiles
from stratamq.rpc import discovery
from tests.dispatcher.followed_log import WrittenLog
from tests.pipeline.job_stores import HERE, PART_BYTES
from tests.support.fixtures import unpack
from tests.support.waiting import until_readable_in_files


def export(root: Path, out: Path, **more):
    return run_export(ExportOptions(str(root), str(out), part_bytes=PART_BYTES, **more), HERE)


def rows(out: Path) -> list[tuple[str, int, int, int]]:
    """(topic, queue, queue offset, log offset) of every row of every file, by log offset."""
    found = []
    for path in sorted(out.glob("topic=*/date=*/*.parquet")):
        table = pq.ParquetFile(path).read(["queueId", "queueOffset", "physicalOffset"])
        topic = path.parent.parent.name.removeprefix("topic=").replace("%25", "%")
        found += [(topic, *row.values()) for row in table.to_pylist()]
    return sorted(found, key=lambda row: row[3])


def scanned(root: Path, begin: int = 0) -> list[tuple[str, int, int, int]]:
    columns = ["topic", "queueId", "queueOffset", "physicalOffset"]
    table = stratamq.scan(root, columns=columns).to_arrow().to_pylist()
    return [tuple(row.values()) for row in table if row["physicalOffset"] >= begin]


def written_log(root: Path, count: int) -> WrittenLog:
    root.mkdir()
    log = WrittenLog(RealFiles(root))
    log.put_many(count)
    return log


@pytest.mark.spark
def test_all_columns_of_all_messages_by_topic_and_date(spark, tmp_path):
    root = unpack("5.5.1-ipv6-v2-crc", tmp_path)
    summary = export(root, tmp_path / "out")
    assert rows(tmp_path / "out") == scanned(root)
    assert summary.facts["messages"] == len(scanned(root))
    read = spark.read.parquet(str(tmp_path / "out"))
    expected = {row["physicalOffset"]: row for row in stratamq.scan(root).to_arrow().to_pylist()}
    for row in read.collect():
        message = expected.pop(row["physicalOffset"])
        assert row["date"] == message["storeTimestamp"].date()
        for name, value in message.items():
            if name == "properties":
                assert row[name] == dict(value)
            elif name == "body":
                assert bytes(row[name]) == value
            elif name.endswith("Timestamp"):
                assert row[name].timestamp() == pytest.approx(value.timestamp(), abs=1e-6)
            else:
                assert row[name] == value
    assert not expected
    # Every reader of hive directories can read it, without Spark too.
    import pyarrow.dataset as ds

    partitioning = ds.partitioning(flavor="hive")
    dataset = ds.dataset(tmp_path / "out", format="parquet", partitioning=partitioning)
    assert dataset.count_rows() == summary.facts["messages"]


@pytest.mark.spark
def test_a_running_broker_is_exported_as_its_files_are(spark, broker, tmp_path):
    address, out = discovery.read(broker.root, "commitlog").address, tmp_path / "out"
    for run, count in ((1, 400), (2, 100)):
        with connect(broker.root) as client, client.producer(batch_messages=20) as producer:
            for number in range(count):
                producer.send("ab"[number % 2], b"%d" % number + bytes(300))
        summary = run_export(ExportOptions(address, str(out), part_bytes=PART_BYTES), HERE)
        assert (summary.facts["run"], summary.facts["messages"]) == (run, count)
    until_readable_in_files(broker.root)
    assert rows(out) == scanned(broker.root)
    with connect(broker.root) as client:
        assert rows(out) == sorted(
            (
                (one.topic, one.queue_id, one.queue_offset, one.physical_offset)
                for one in client.consume(["a", "b"])
            ),
            key=lambda row: row[3],
        )


@pytest.mark.spark
def test_each_run_takes_what_is_new(spark, tmp_path):
    log = written_log(tmp_path / "store", 30)
    out = tmp_path / "out"
    first = export(tmp_path / "store", out)
    assert first.facts["messages"] == 30
    assert export(tmp_path / "store", out).facts["result"] == "nothing new"
    log.put_many(25, topics=3)
    dry = export(tmp_path / "store", out, dry_run=True)
    assert (dry.facts["begin_offset"], dry.facts["end_offset"]) == (
        first.facts["end_offset"],
        log.end,
    )
    second = export(tmp_path / "store", out)
    assert second.facts["messages"] == 25
    assert rows(out) == scanned(tmp_path / "store")
    manifests = ExportDirectory(LocalFiles(out)).manifests()
    assert [(one.begin, one.end) for one in manifests] == [
        (0, first.facts["end_offset"]),
        (first.facts["end_offset"], log.end),
    ]
    # Queue offsets of the runs join without a gap.
    for topic, queues in manifests[0].queues.items():
        for queue, (_, end) in queues.items():
            assert manifests[1].queues.get(topic, {}).get(queue, [end])[0] == end
    with pytest.raises(InvalidRequestError, match="was begun with"):
        export(tmp_path / "store", out, topics=("topic-0",))

    log.delete_below(log.end - 4096)
    log.put_many(5)
    again = export(tmp_path / "store", out)
    assert again.facts["messages"] == 5


@pytest.mark.spark
def test_what_retention_deleted_unexported_is_reported(spark, tmp_path):
    log = written_log(tmp_path / "store", 10)
    out = tmp_path / "out"
    export(tmp_path / "store", out)
    exported = len(rows(out))
    log.put_many(60)
    log.delete_below(log.end)
    with pytest.raises(OffsetOutOfRangeError, match="--accept-gap"):
        export(tmp_path / "store", out)
    assert len(rows(out)) == exported
    summary = export(tmp_path / "store", out, accept_gap=True)
    assert "were deleted" in summary.notes[0]
    assert len(rows(out)) == exported + len(scanned(tmp_path / "store"))


@pytest.mark.spark
def test_another_log_is_refused(spark, tmp_path):
    written_log(tmp_path / "store", 10)
    out = tmp_path / "out"
    export(tmp_path / "store", out)
    other = written_log(tmp_path / "other", 3)
    with pytest.raises(InvalidRequestError, match="a slave that is behind its master"):
        export(tmp_path / "other", out)
    other.put("topic-0", 0, b"something else", after_ms=5000)
    other.put_many(20)
    with pytest.raises(InvalidRequestError, match="not the log"):
        export(tmp_path / "other", out)
    with pytest.raises(InvalidRequestError, match="no export"):
        export(tmp_path / "store", tmp_path / "other")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_killed_export_run_again_has_no_gap_and_no_duplicate(spark, tmp_path):
    root = unpack("4.9.8-small-clean", tmp_path)
    out = tmp_path / "out"
    child = subprocess.Popen(
        [sys.executable, "-m", "stratamq.cli", "pipeline", "export", str(root), str(out),
         "--master", "local[1]"],
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        staging = out / "_exports" / "staging"
        while not _has_rows(staging):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=0.001)
                pytest.fail("it ended before it could be killed")
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    export(root, out)
    assert rows(out) == scanned(root)
    assert not staging.exists()


def _has_rows(staging: Path) -> bool:
    """Directories that Spark removes while they are looked through are looked through again."""
    with contextlib.suppress(FileNotFoundError):
        return any(staging.rglob("*.parquet"))
    return False


# --- publishing, stopped at every step: without Spark ---


class StoppedError(Exception):
    """In the place of a kill."""


def staged(directory: ExportDirectory, run: int) -> ExportManifest:
    names = [f"topic=t{n}/date=2026-01-0{n}/r{run:08d}-{n}.parquet" for n in (1, 2, 3)]
    for name in names:
        directory.files.write(f"{directory.rows(run)}/{staged_name(name)}", f"{run} {name}")
    return ExportManifest(run, run * 10 - 10, run * 10, 3, tuple(names), {}, {}, None)


def test_publishing_may_stop_anywhere(tmp_path, monkeypatch):
    """Before a run is written down as complete nothing of it is there at the end; from then on all
    is. Its manifest has its name only when all of its files have theirs."""
    outcomes = set()
    for stop in range(40):
        out = tmp_path / f"out{stop}"
        directory = ExportDirectory(LocalFiles(out))
        steps = 0

        def counted(real, stop=stop):
            def call(*arguments, **options):
                nonlocal steps
                steps += 1
                if steps > stop:
                    raise StoppedError
                return real(*arguments, **options)

            return call

        with directory.locked():
            directory.publish(staged(directory, 1))
            manifest = staged(directory, 2)
            with monkeypatch.context() as patched:
                for name in ("rename", "replace", "fsync"):
                    patched.setattr(os, name, counted(getattr(os, name)))
                patched.setattr(output_files.shutil, "rmtree", counted(shutil.rmtree))
                try:
                    directory.publish(manifest)
                    stopped = False
                except StoppedError:
                    stopped = True
        named = {name for one in directory.manifests() for name in one.files}
        assert named <= directory.files.files_below("")
        with directory.locked():
            carried = directory.recover()
        manifests = directory.manifests()
        files = sorted(path.read_text() for path in out.glob("topic=*/*/*"))
        published = len(manifests) == 2
        expected = [f"{one.run} {name}" for one in manifests for name in one.files]
        assert files == sorted(expected)
        assert not (out / "_exports" / "staging").exists()
        assert stopped or published
        outcomes.add((stopped, carried, published))
        if not stopped:
            break
    assert outcomes == {
        (True, False, False),
        (True, True, True),
        (True, False, True),
        (False, False, True),
    }


def test_a_second_run_at_the_same_time_is_refused(tmp_path):
    first, second = (ExportDirectory(LocalFiles(tmp_path / "out")) for _ in range(2))
    with first.locked(), pytest.raises(BusyError), second.locked():
        pass


def test_manifests_that_are_damaged_or_missing_are_named(tmp_path):
    directory = ExportDirectory(LocalFiles(tmp_path / "out"))
    with directory.locked():
        for run in (1, 2):
            directory.publish(staged(directory, run))
    first = tmp_path / "out" / "_exports" / "00000001.json"
    assert json.loads(first.read_text())["end"] == 10
    text = first.read_text()
    first.write_text(text[:50])
    with pytest.raises(CorruptionError, match="no manifest"):
        directory.manifests()
    first.unlink()
    with pytest.raises(CorruptionError, match=r"00000001.json is missing"):
        directory.manifests()


@pytest.mark.spark
def test_a_row_that_was_read_and_is_not_in_a_file_keeps_the_run_from_being_published(
    spark, tmp_path, monkeypatch
):
    written_log(tmp_path / "store", 30)
    out = tmp_path / "out"
    real = export_job.write

    def losing_one_file(rows, place):
        read = real(rows, place)
        min(Path(place.removeprefix("file://")).rglob("*.parquet")).unlink()
        return read

    with monkeypatch.context() as patched:
        patched.setattr(export_job, "write", losing_one_file)
        with pytest.raises(InvalidRequestError, match=r"30 messages were read, and \d+ are in"):
            export(tmp_path / "store", out)
    assert not list(out.glob("topic=*"))
    assert not list(out.glob("_exports/*.json"))
    assert export(tmp_path / "store", out).facts["messages"] == 30
    assert rows(out) == scanned(tmp_path / "store")
