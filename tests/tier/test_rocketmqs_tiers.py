"""Tiers that the real RocketMQ wrote, read by ours line by line."""

import json
import shutil
from pathlib import Path

import pytest

from stratamq.cli.__main__ import main
from tests.compatibility.table import rows
from tests.support.fixtures import ALL_TIERS, expected_of_tier, unpack_tier
from tests.tier.differences import EXPLANATIONS, HEADING, Line, allowed, compare


def dump(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[Line]:
    with pytest.raises(SystemExit) as ended:
        main(["tier", "dump", *words, "--output", "json"])
    assert ended.value.code == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(scope="module", params=ALL_TIERS)
def tier(request, tmp_path_factory) -> Path:
    return unpack_tier(request.param, tmp_path_factory.mktemp("tier"))


def test_every_line_is_rocketmqs_or_a_row_of_the_table(tier, capsys):
    ours = dump(capsys, str(tier))
    comparison = compare(expected_of_tier(tier.name), ours, tier.name)
    assert not comparison.unexplained, comparison.unexplained[:3]
    assert comparison.seen == allowed(tier.name)


def test_reading_changes_nothing(tier, capsys):
    before = {path: path.read_bytes() for path in tier.rglob("*") if path.is_file()}
    dump(capsys, str(tier), "--no-keys")
    after = {path: path.read_bytes() for path in tier.rglob("*") if path.is_file()}
    assert after == before


def test_every_row_of_the_table_is_checked_and_shows_somewhere():
    names = [row.name for row in rows(HEADING)]
    assert sorted(names) == sorted(EXPLANATIONS)
    assert set(names) == set().union(*(allowed(name) for name in (*ALL_TIERS, "ours")))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("message", "recordSha256", "00"),
        ("get", "next", 7),
        ("get", "status", "FOUND"),
        ("offsetByTime", "lower", 3),
        ("query", "messages", []),
        ("query", "files", {}),
        ("queue", "maxStoreTime", 5),
        ("indexFile", "items", 1),
    ],
)
@pytest.mark.parametrize("fixture", ALL_TIERS)
def test_another_answer_is_seen_by_the_comparison(fixture, kind, name, value):
    theirs = expected_of_tier(fixture)
    ours = [dict(line) for line in theirs]
    changed = next(line for line in ours if line["kind"] == kind and line[name] != value)
    changed[name] = value
    assert compare(theirs, ours, fixture).unexplained


@pytest.mark.parametrize("content", [b"", b"{", b'{"topicSeri'])
def test_the_backup_is_read_where_the_metadata_is_cut(content, tmp_path, capsys):
    tier = unpack_tier("clean", tmp_path)
    main_file = tier / "local/config/tieredStoreMetadata.json"
    whole = main_file.read_bytes()
    main_file.with_suffix(".json.bak").write_bytes(whole)
    main_file.write_bytes(content)
    wanted = [line for line in expected_of_tier("clean") if line["kind"] != "query"]
    assert dump(capsys, str(tier), "--no-keys") == wanted


def test_metadata_that_cannot_be_read_is_an_error_and_no_empty_tier(tmp_path, capsys):
    tier = unpack_tier("clean", tmp_path)
    for path in (tier / "local/config").iterdir():
        path.write_bytes(b"{")
    dump(capsys, str(tier), code=1)


def test_a_damaged_record_shifts_no_other_message(tmp_path, capsys):
    tier = unpack_tier("clean", tmp_path)
    wanted = expected_of_tier("clean")
    of_queue = [
        line
        for line in wanted
        if line["kind"] == "message" and (line["topic"], line["queueId"]) == ("orders", 1)
    ]
    third = of_queue[2]
    (file,) = (tier / "tier/212d6b50_DefaultCluster/broker-a/orders/1/COMMIT_LOG").iterdir()
    content = bytearray(file.read_bytes())
    content[third["physicalOffset"] + 4] ^= 0xFF
    file.write_bytes(content)
    found = [
        line
        for line in dump(capsys, str(tier), "--no-keys")
        if line["kind"] == "message" and (line["topic"], line["queueId"]) == ("orders", 1)
    ]
    assert found == [line for line in of_queue if line is not third]


def test_a_coda_of_older_releases_in_front_of_a_record_is_skipped(tmp_path, capsys):
    tier = unpack_tier("clean", tmp_path)
    folder = tier / "tier/212d6b50_DefaultCluster/broker-a/payments/1"
    (records,) = (folder / "COMMIT_LOG").iterdir()
    units = sorted((folder / "CONSUME_QUEUE").iterdir(), key=lambda path: path.name[8:])[0]
    second = int.from_bytes(units.read_bytes()[20:28], "big")
    coda = (16).to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(8)
    content = records.read_bytes()
    records.write_bytes(content[:second] + coda + content[second:])
    found = [
        (line["queueOffset"], line["bodySha256"])
        for line in dump(capsys, str(tier), "--no-keys")
        if line["kind"] == "message" and (line["topic"], line["queueId"]) == ("payments", 1)
    ]
    wanted = [
        (line["queueOffset"], line["bodySha256"])
        for line in expected_of_tier("clean")
        if line["kind"] == "message" and (line["topic"], line["queueId"]) == ("payments", 1)
    ]
    assert found[:2] == wanted[:2]


def test_segments_whose_file_is_gone_are_a_gap_and_no_end(tmp_path, capsys):
    tier = unpack_tier("rolled-expired", tmp_path)
    shutil.rmtree(tier / "tier/212d6b50_DefaultCluster/broker-a/orders/0")
    lines = dump(capsys, str(tier), "--no-keys")
    kept = [line for line in lines if line["kind"] == "message"]
    assert kept
    assert not [line for line in kept if (line["topic"], line["queueId"]) == ("orders", 0)]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "scenario.json"),
        (("--broker", "broker-a"), "tieredStoreMetadata.json"),
        (("--broker", "broker-a", "--tier", "/nowhere"), "no directory"),
    ],
)
def test_what_is_missing_is_named(words, sentence, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["tier", "dump", str(tmp_path), *words])
    assert ended.value.code == 1
    assert sentence in capsys.readouterr().err


def test_a_damaged_index_file_is_named_and_the_others_are_read(tmp_path, capsys):
    tier = unpack_tier("clean", tmp_path)
    folder = tier / "tier/212d6b50_DefaultCluster/broker-a/rmq_sys_INDEX/0/INDEX"
    damaged = sorted(folder.iterdir())[0]
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    lines = dump(capsys, str(tier), code=1)
    assert sum(line["kind"] == "indexFile" for line in lines) == 5
    assert [line for line in lines if line["kind"] == "query" and line["messages"]]
