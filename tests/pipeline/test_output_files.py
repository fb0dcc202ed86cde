"""What jobs publish: never over what is there, whole, synced before it has a name; no Spark."""

import os
from pathlib import Path

import pytest
from stratamq_pipeline.export.job import Counted, check_counts
from stratamq_pipeline.export.manifest import ExportDirectory
from stratamq_pipeline.jobs.output_files import LocalFiles
from stratamq_pipeline.jobs.target import Target
from stratamq_pipeline.same_file import END_BYTES, check_same, witness

from stratamq.errors import CorruptionError, InvalidRequestError
from stratamq.files.real import RealFiles
from stratamq.table.log_files import open_log
from tests.dispatcher.followed_log import WrittenLog
from tests.pipeline.test_export import staged


@pytest.fixture
def calls(monkeypatch):
    """What was synced and renamed, in order: ("sync", path) and ("name", path)."""
    found: list[tuple[str, str]] = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def synced(descriptor):
        fsync(descriptor)
        found.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))

    def named(real):
        def call(source, target):
            real(source, target)
            found.append(("name", str(target)))

        return call

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", named(rename))
    monkeypatch.setattr(os, "replace", named(replace))
    return found


def test_nothing_is_renamed_over_what_is_there(tmp_path):
    files = LocalFiles(tmp_path)
    files.write("new", "new")
    files.write("old", "old")
    files.make("directory")
    for there in ("old", "directory"):
        with pytest.raises(FileExistsError, match="is there already"):
            files.rename("new", there)
    assert (files.read("new"), files.read("old")) == ("new", "old")


def test_a_job_does_not_begin_over_what_is_published(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidRequestError, match="name a fresh directory"):
        Target(LocalFiles(tmp_path / "out"))
    with pytest.raises(InvalidRequestError, match="there is no directory"):
        Target(LocalFiles(tmp_path / "none" / "out"))


def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_on_return(tmp_path, calls):
    LocalFiles(tmp_path).write("stage.json", "{}")
    place = str(tmp_path / "stage.json")
    assert calls == [("sync", f"{place}.tmp"), ("name", place), ("sync", str(tmp_path))]


def test_an_export_syncs_rows_and_names_before_what_counts_them(tmp_path, calls):
    out = tmp_path / "out"
    directory = ExportDirectory(LocalFiles(out))
    manifest = staged(directory, 1)
    with directory.locked():
        calls.clear()
        directory.publish(manifest)
    rows = str(out / directory.rows(1))
    record = calls.index(("name", str(out / "_exports/staging/00000001/manifest")))
    published = calls.index(("name", str(out / "_exports/00000001.json")))
    of_rows = [path for what, path in calls[:record] if what == "sync" and path.startswith(rows)]
    assert len([path for path in of_rows if path.endswith(".parquet")]) == len(manifest.files)
    for name in manifest.files:
        moved = calls.index(("name", str(out / name)))
        assert record < moved < calls.index(("sync", str((out / name).parent)), moved) < published
    assert ("sync", str(out)) in calls[record:published]
    assert ("sync", str(out / "_exports")) in calls[published:]


def test_a_file_that_vanished_keeps_a_complete_run_from_being_published(tmp_path):
    out = tmp_path / "out"
    directory = ExportDirectory(LocalFiles(out))
    manifest = staged(directory, 1)
    next((out / directory.rows(1)).rglob("*.parquet")).unlink()
    with pytest.raises(CorruptionError, match="is gone, and run 1 has it"):
        directory.publish(manifest)
    assert directory.manifests() == []


def test_a_job_syncs_what_it_made_before_it_has_its_name(tmp_path, calls):
    target = Target(LocalFiles(tmp_path / "out"))
    target.begin({})
    place = tmp_path / target.made / "queues"
    place.mkdir()
    (place / "file").write_text("x")
    calls.clear()
    target.publish()
    named = calls.index(("name", str(tmp_path / "out")))
    assert {("sync", str(path)) for path in (place / "file", place, place.parent)} <= set(
        calls[:named]
    )
    assert ("sync", str(tmp_path)) in calls[named:]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize(
    ("written", "named"),
    [
        (Counted(2, 7), {"a", "b"}),
        (Counted(4, 7), {"a", "b"}),
        (Counted(3, 8), {"a", "b"}),
        (Counted(3, 7), {"a"}),
        (Counted(3, 7), {"a", "b", "c"}),
    ],
)
def test_files_without_exactly_the_rows_that_were_read_are_refused(written, named, tmp_path):
    files = LocalFiles(tmp_path)
    check_counts(files, Counted(3, 7), Counted(3, 7), {"a", "b"}, {"a", "b"})
    with pytest.raises(InvalidRequestError, match="3 messages were read") as error:
        check_counts(files, Counted(3, 7), written, named, {"a", "b"})
    assert str(tmp_path) in str(error.value)


def test_a_worker_reads_no_other_file_than_the_driver_saw(tmp_path):
    log = WrittenLog(RealFiles(tmp_path), 1 << 16)
    log.put_many(150)
    part = open_log(tmp_path).parts()[0]
    assert part.end - part.begin > 2 * END_BYTES
    seen = witness(part)
    check_same(part, seen)
    path = Path(part.path)
    content = path.read_bytes()
    for at in (0, part.end - part.begin - 1):
        changed = bytearray(content)
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(InvalidRequestError, match="its bytes differ"):
            check_same(part, seen)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        check_same(part, seen)
    path.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(InvalidRequestError, match="there is no"):
        check_same(part, seen)
