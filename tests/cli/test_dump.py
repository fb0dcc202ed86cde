"""`stratamq dump` on the directories RocketMQ wrote, whole and damaged."""

import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from stratamq.cli.__main__ import run
from stratamq.files.metadata import MetadataFile
from stratamq.files.real import RealFiles
from stratamq.formats.frame import encode, encode_blank
from stratamq.formats.sysflag import Compression
from tests.support.compressing import compress_body
from tests.support.fixtures import ALL_STORES, CLEAN_STORES, expected, log_files, unpack, vectors
from tests.support.sampling import few

ADDED_TO_FRAME = {
    "physicalOffset", "flag", "bodyCRC", "bornTimestamp", "bornHost", "storeHost",
    "reconsumeTimes", "bodyLength", "bodySha256", "properties", "msgId", "body", "bodyEncoding",
    "blankLength", "propertyCrcOk",
}  # fmt: skip


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    unpacked: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in unpacked:
            unpacked[name] = unpack(name, tmp_path_factory.mktemp("store"))
        return unpacked[name]

    return get


@pytest.fixture
def dump(capsys):
    def call(*arguments: object, code: int = 0) -> list[dict]:
        assert run(["dump", *map(str, arguments), "--output", "json"]) == code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return call


@pytest.fixture
def shown(capsys):
    def call(*arguments: object, code: int = 0) -> str:
        assert run(["dump", *map(str, arguments)]) == code
        captured = capsys.readouterr()
        return captured.out + captured.err

    return call


def build(body: bytes, topic: bytes = b"orders", **fields) -> bytes:
    host = bytes.fromhex("7f00000100002a9f")
    return encode(topic=topic, body=body, born_host=host, store_host=host, **fields)


def log_of(directory: Path, *frames: bytes, size: int = 4096, start: int = 0) -> Path:
    path = directory / f"{start:020d}"
    path.write_bytes(b"".join(frames).ljust(size, b"\0"))
    return path


def everything(root: Path) -> dict[str, tuple]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.is_file() and
                    path.read_bytes())
        for path in root.rglob("*")
    }  # fmt: skip


# --- RocketMQ's answers


@pytest.mark.parametrize("name", ALL_STORES)
def test_frames_are_rocketmqs_frame_lines(stores, dump, name):
    torn = name == "5.5.1-crash"  # there the tear makes a frame that even RocketMQ refuses
    rows = dump("commitlog", stores(name), code=1 if torn else 0)
    stops = [row for row in rows if row["kind"] == "stop"]
    assert [stop["damage"] for stop in stops] == ([True, False] if torn else [False])
    assert not torn or stops[0]["reason"].endswith("torn by a crash")
    ours = [
        {key: value for key, value in row.items() if key not in ADDED_TO_FRAME}
        for row in rows
        if row["kind"] == "frame"
        and row.get("blankLength") != 8  # the lines we compare with leave these out
    ]
    assert ours == list(expected(name, "frame"))


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_messages_are_rocketmqs_message_lines(stores, dump, name):
    rows = [
        row for row in dump("messages", stores(name), "--body", "hex") if row["kind"] == "message"
    ]
    wanted = {(row["topic"], row["queueId"], row["at"]): row for row in expected(name, "message")}
    assert len(rows) == len(wanted)
    for row in rows:
        line = wanted[row["topic"], row["queueId"], row["at"]]
        if row["sysFlag"] & 1 or "bodySha256" in line:
            line = {key: value for key, value in line.items() if key != "body"}
        else:
            assert row["body"] == line["body"]
        assert {key: row[key] for key in line} == line


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_index_headers_are_rocketmqs_index_lines(stores, dump, name):
    rows = dump("index", stores(name), "--headers")
    lines = list(expected(name, "index"))
    assert [{key: row[key] for key in line} for row, line in zip(rows, lines, strict=True)] == lines


def test_nothing_is_written(stores, shown):
    root = stores("5.5.1-crash")
    before = everything(root)
    for command in ("commitlog", "consumequeue", "messages", "index", "checkpoint"):
        shown(command, root, code=1 if command == "commitlog" else 0)
    assert everything(root) == before


def test_an_unwritable_directory_is_no_obstacle(stores, shown):
    root = stores("4.9.8-small-clean")
    for path in (root / "commitlog").iterdir():
        path.chmod(0o400)
    (root / "commitlog").chmod(0o500)
    try:
        assert "sensor-readings" in shown("commitlog", root, "-n", 30)
    finally:
        (root / "commitlog").chmod(0o700)


# --- selection


def test_one_frame_by_its_offset_and_some_from_there(stores, dump):
    root = stores("4.9.8-small-clean")
    lines = list(expected("4.9.8-small-clean", "frame"))
    place = lines[5]["phyOffset"]
    assert [row["phyOffset"] for row in dump("commitlog", root, "--offset", place)] == [place]
    rows = dump("commitlog", root, "--offset", place, "--count", 3)
    assert [row["phyOffset"] for row in rows] == [line["phyOffset"] for line in lines[5:8]]


def test_a_range_of_offsets_across_files(stores, dump):
    root = stores("4.9.8-small-clean")
    inside = [
        line["phyOffset"]
        for line in expected("4.9.8-small-clean", "frame")
        if 60000 <= line["phyOffset"] < 140000
    ]
    rows = dump("commitlog", root, "--from", 60000, "--to", 140000)
    assert [row["phyOffset"] for row in rows if row.get("blankLength") != 8] == inside


def test_a_single_file_counts_from_its_name_or_else_from_its_first_frame(stores, dump, tmp_path):
    file = stores("4.9.8-small-clean") / "commitlog" / "00000000000000065536"
    by_name = dump("commitlog", file, "-n", 2)
    assert by_name[0]["phyOffset"] == 65536
    copy = tmp_path / "some copy"
    copy.write_bytes(file.read_bytes())
    assert dump("commitlog", copy, "-n", 2) == by_name


def test_an_offset_inside_a_frame_is_reported_with_that_frame(stores, shown):
    root = stores("4.9.8-small-clean")
    assert "inside the frame at offset 397" in shown("commitlog", root, "--offset", 400, code=1)
    assert "there is 0 to 327680" in shown("commitlog", root, "--offset", 10**9, code=1)


def test_messages_by_queue_index(stores, dump):
    root = stores("4.9.8-small-clean")
    rows = dump("messages", root, "--topic", "orders", "--queue", 1, "--from", 1, "--count", 1)
    assert [(row["topic"], row["queueId"], row["at"]) for row in rows] == [("orders", 1, 1)]
    rows = dump("consumequeue", root, "--topic", "sensor-readings", "--queue", 0,
                "--from", 7, "--to", 10)  # fmt: skip
    assert [row["at"] for row in rows] == [7, 8, 9]


def test_a_queue_by_each_of_its_paths(stores, dump):
    root = stores("4.9.8-small-clean")
    topic = root / "consumequeue" / "sensor-readings"
    whole = dump("consumequeue", root, "-t", "sensor-readings", "-q", 0)
    assert dump("consumequeue", root / "consumequeue", "-t", "sensor-readings", "-q", 0) == whole
    assert dump("consumequeue", topic, "-q", 0) == whole
    assert dump("consumequeue", topic / "0") == whole
    second = dump("consumequeue", topic / "0" / f"{160:020d}")
    assert [row["at"] for row in second if row["kind"] == "unit"] == list(range(8, 16))


def test_index_items_by_key_and_by_offset(stores, dump):
    root = stores("4.9.8-small-clean")
    query = next(line for line in expected("4.9.8-small-clean", "query") if line["phyOffsets"])
    key = f"{query['topic']}#{query['key']}"
    items = [row for row in dump("index", root, "--key", key) if row["kind"] == "item"]
    assert query["phyOffsets"][0] in [row["phyOffset"] for row in items]
    offset = items[0]["phyOffset"]
    rows = [row for row in dump("index", root, "--offset", offset) if row["kind"] == "item"]
    assert rows
    assert {row["phyOffset"] for row in rows} == {offset}


# --- geometry of index files


def test_geometry_is_taken_from_options_then_files_then_the_items(stores, dump, tmp_path):
    source = stores("4.9.8-small-clean") / "index"
    first = min(source.iterdir())
    root = tmp_path / "store"
    (root / "index").mkdir(parents=True)
    copy = root / "index" / first.name
    copy.write_bytes(first.read_bytes())

    def geometry(*options: object) -> tuple:
        row = dump("index", copy, "--headers", *options)[0]
        return row["slots"], row["items"], row["geometryFrom"]

    assert geometry() == (16, 64, "a guess that all items agree with")
    record = MetadataFile(RealFiles(root), "stratamq/geometry.json")
    record.store({"index_slots": 16, "index_items": 64})
    assert geometry() == (16, 64, str(root / record.path))
    (root / "geometry.properties").write_text("slots=16\nitems=64\n")
    assert geometry()[2].endswith("geometry.properties")
    assert geometry("--slots", 16, "--items", 64) == (16, 64, "--slots and --items")


def test_a_geometry_that_cannot_be_seen_is_asked_for(stores, shown, tmp_path):
    first = min((stores("4.9.8-small-clean") / "index").iterdir())
    copy = tmp_path / first.name
    copy.write_bytes(first.read_bytes() + bytes(20))
    assert "--slots and --items" in shown("index", copy, code=1)
    copy.write_bytes(bytes(1384))
    assert "--slots and --items" in shown("index", copy, code=1)
    assert "--slots and --items together" in shown("index", copy, "--slots", 5, code=1)


def test_a_wrong_geometry_is_called_so(stores, shown):
    text = shown("index", stores("4.9.8-small-clean"), "--slots", 21, "--items", 63, code=1)
    assert "not every item hangs in the slot of its hash" in text


# --- bodies and hex


@pytest.mark.parametrize("compression", [None, *Compression])
@pytest.mark.parametrize(
    ("body", "encoding", "value"),
    [
        ('{"a": [1, "é"]}'.encode(), "json", {"a": [1, "é"]}),
        ("grüße\n".encode(), "text", "grüße\n"),
        (b"{not json", "text", "{not json"),
        (b"\x00\xff", "hex", "00ff"),
        (b"\x1b[31mred", "hex", b"\x1b[31mred".hex()),
        (b"", "text", ""),
    ],
)
def test_bodies_are_decompressed_and_shown_as_what_they_are(
    tmp_path, dump, compression, body, encoding, value
):
    stored, bits = (body, 0) if compression is None else compress_body(body, compression)
    row = dump("commitlog", log_of(tmp_path, build(stored, sys_flag=bits)))[0]
    assert (row["bodyEncoding"], row["body"]) == (encoding, value)
    assert row["bodyLength"] == len(stored)


def test_bodies_as_asked_for(tmp_path, dump):
    path = log_of(tmp_path, build(b'{"a":1}'))
    assert dump("commitlog", path, "--body", "hex")[0]["body"] == b'{"a":1}'.hex()
    assert dump("commitlog", path, "--body", "text")[0]["body"] == '{"a":1}'
    assert "body" not in dump("commitlog", path, "--body", "none")[0]


def test_a_body_that_does_not_decompress_is_shown_as_stored(tmp_path, dump):
    row = dump("commitlog", log_of(tmp_path, build(b"no zlib", sys_flag=1)))[0]
    assert row["body"] == b"no zlib".hex()
    assert "ZLIB" in row["bodyError"]


def test_hex_marks_every_field(stores, dump, shown):
    root = stores("5.5.1-ipv6-v2-crc")
    for line in few(expected("5.5.1-ipv6-v2-crc", "frame"), 20):
        row = dump("commitlog", root, "--offset", line["phyOffset"], "--hex")[0]
        if line["size"]:
            assert len(row["hex"]) == 2 * line["size"]
        ends = 0
        for _, position, size in row["fields"]:
            assert position == ends
            ends += size
        assert ends == len(row["hex"]) // 2
    text = shown("commitlog", root, "--offset", 0, "--hex")
    for name in ("TOTALSIZE", "MAGICCODE", "BODYCRC", "BORNHOST", "STORETIMESTAMP", "PROPERTIES"):
        assert name in text
    assert "|da a3 20 a7|" in text


def test_what_would_drive_a_terminal_is_shown_not_obeyed(tmp_path, shown):
    frame = build(b"\x1b]0;title\x07 {x", topic=b"\x1b[2J", properties=b"KEYS\x01[bold]\x1b[0m")
    path = log_of(tmp_path, frame)
    for options in ((), ("--detail",), ("--body", "text"), ("--offset", 0, "--hex")):
        text = shown("commitlog", path, *options)
        assert "\x1b" not in text
        assert "\x07" not in text
    assert "[bold]" in shown("commitlog", path, "--detail")


# --- damage


def test_a_damaged_body_is_marked_and_the_walk_continues(tmp_path, dump):
    bad = build(b"first body").replace(b"first", b"fIrst")
    rows = dump("commitlog", log_of(tmp_path, bad, build(b"second")), code=1)
    assert [row.get("ok") for row in rows[:2]] == [False, True]
    assert "checksum" in rows[0]["fault"]


@pytest.mark.parametrize(
    ("position", "layout", "value", "reason"),
    [
        (4, ">I", 0x12345678, "magic number"),
        (0, ">i", 95, "TOTALSIZE"),
        (0, ">i", 10**6, "bytes end before the frame"),
        (84, ">i", 2**30, "length inside the frame"),
    ],
)
def test_damage_stops_a_file_and_the_next_one_is_shown(
    tmp_path, dump, shown, position, layout, value, reason
):
    good, bad = build(b"good"), bytearray(build(b"bad"))
    struct.pack_into(layout, bad, position, value)
    log_of(tmp_path, good, bytes(bad))
    log_of(tmp_path, good, start=4096)
    rows = dump("commitlog", tmp_path, code=1)
    assert [row["kind"] for row in rows] == ["frame", "stop", "frame", "stop"]
    assert rows[1]["damage"]
    assert rows[1]["position"] == rows[1]["offset"] == len(good)
    assert reason in rows[1]["reason"]
    assert not rows[3]["damage"]
    text = shown("commitlog", tmp_path, code=1)
    assert f"damaged at byte {len(good)}" in text


def test_zeros_in_the_middle_of_the_log_are_damage(tmp_path, dump):
    log_of(tmp_path, build(b"one"))
    log_of(tmp_path, build(b"two"), start=4096)
    rows = dump("commitlog", tmp_path, code=1)
    assert "but the log continues in 00000000000000004096" in rows[1]["reason"]


def test_zeros_before_a_preallocated_file_are_the_end(tmp_path, dump):
    log_of(tmp_path, build(b"one"))
    log_of(tmp_path, start=4096)
    assert [row["kind"] for row in dump("commitlog", tmp_path)] == ["frame", "stop"]


def test_a_blank_of_the_wrong_length_is_damage(tmp_path, dump):
    assert (
        "a blank of 77 bytes"
        in dump("commitlog", log_of(tmp_path, encode_blank(77)), code=1)[-1]["reason"]
    )


def test_every_cut_of_a_file_is_shown_as_far_as_it_goes(tmp_path, dump):
    frames = build(b"one") + build(b"two")
    half = len(frames) // 2
    for size in range(len(frames)):
        path = log_of(tmp_path, frames[:size], size=size)
        whole = size in (0, half)
        rows = dump("commitlog", path, code=0 if whole else 1)
        assert sum(row["kind"] == "frame" for row in rows) == size // half


@pytest.mark.parametrize("command", ["commitlog", "consumequeue", "index", "checkpoint"])
def test_rubbish_is_an_error_in_one_line(tmp_path, capsys, command):
    for number, content in enumerate((b"\xff" * 5000, b"\x01", b"text\n" * 100)):
        path = tmp_path / f"rubbish{number}"
        path.write_bytes(content)
        assert run(["dump", command, str(path)]) in (0, 1)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        assert len(captured.err.splitlines()) <= 1


def test_any_damaged_store_is_shown_or_refused_and_never_a_traceback(tmp_path, capsys):
    root = unpack("4.9.8-small-clean", tmp_path)
    chance = random.Random(3)
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size]
    for _ in range(4):
        for path in chance.sample(files, 8):
            content = bytearray(path.read_bytes())
            if chance.random() < 0.2:
                del content[chance.randrange(len(content) + 1) :]
            for _ in range(chance.randrange(20) if content else 0):
                content[chance.randrange(len(content))] = chance.randrange(256)
            path.write_bytes(content)
        for command in ("commitlog", "consumequeue", "messages", "index", "checkpoint"):
            for options in (["-o", "json"], ["--hex", "--count", "3"], []):
                if command == "checkpoint":
                    options = [option for option in options if option not in ("--count", "3")]
                assert run(["dump", command, str(root), *options]) in (0, 1)
                assert len(capsys.readouterr().err.splitlines()) <= 1


def test_a_unit_that_points_nowhere_is_named(stores, tmp_path, dump):
    root = unpack("4.9.8-small-clean", tmp_path)
    unit = root / "consumequeue" / "orders" / "1" / f"{0:020d}"
    content = bytearray(unit.read_bytes())
    struct.pack_into(">q", content, 0, 10**12)
    struct.pack_into(">q", content, 20, 7)
    unit.write_bytes(content)
    rows = dump("messages", root, "-t", "orders", "-q", 1, code=1)
    assert [row["kind"] for row in rows[:3]] == ["lost", "lost", "message"]
    assert "is in no file" in rows[0]["reason"]


def test_missing_things_are_named(tmp_path, shown, stores):
    root = stores("4.9.8-small-clean")
    assert "no such file" in shown("commitlog", tmp_path / "nothing", code=1)
    assert "no commit log files" in shown("commitlog", tmp_path, code=1)
    assert "no index files" in shown("index", tmp_path, code=1)
    assert "not the root of a store" in shown("messages", tmp_path, code=1)
    assert "no consume queue of topic none" in shown("consumequeue", root, "-t", "none", code=1)
    assert "range" in shown("commitlog", root, "--offset", 0, "--to", 5, code=1)
    (tmp_path / "checkpoint").mkdir()
    assert "is not a file" in shown("checkpoint", tmp_path, code=1)


# --- the command line itself


def test_usage_errors_end_with_2(capsys):
    for arguments in (["nonsense"], ["dump", "commitlog"], ["dump", "commitlog", ".", "-n", "0"]):
        assert run(arguments) == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("stratamq ")


def test_a_reader_that_goes_away_gets_no_traceback(stores):
    root = stores("4.9.8-small-clean")
    for options in ([], ["-o", "json"], ["--detail", "--hex"]):
        with subprocess.Popen(
            [sys.executable, "-m", "stratamq.cli", "dump", "commitlog", str(root), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        ) as process:
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait() == 141


def test_output_for_an_ascii_terminal(stores):
    result = subprocess.run(
        [sys.executable, "-m", "stratamq.cli", "dump", "commitlog",
         str(stores("4.9.8-small-clean")), "-n", "40"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )  # fmt: skip
    assert result.stderr == b""
    assert result.stdout.isascii()


def test_log_files_of_the_fixture_are_what_is_walked(stores, dump):
    root = stores("4.9.8-small-clean")
    assert dump("commitlog", root / "commitlog") == dump("commitlog", root)
    assert len(log_files(root)) == 5


# --- the state table of transactions ---


def test_transactions_of_rocketmq_3_1(tmp_path, dump, shown):
    unit = bytes.fromhex(vectors()["tran_statetable_unit_31"]["hex"])
    rolled_back = unit[:-1] + b"\x0c"
    table = tmp_path / "transaction" / "statetable"
    table.mkdir(parents=True)
    (table / f"{0:020d}").write_bytes(unit + rolled_back)
    (table / f"{48:020d}").write_bytes(unit + bytes(24))
    rows = dump("transactions", tmp_path)
    assert [(row["at"], row["state"]) for row in rows] == [
        (0, "prepared"),
        (1, "rolled back"),
        (2, "prepared"),
    ]
    assert rows[0]["phyOffset"] == 1024 and rows[0]["storeTimestamp"] == 1_500_000_000_000
    assert dump("transactions", table) == rows
    assert [row["at"] for row in dump("transactions", table, "--undecided")] == [0, 2]
    assert dump("transactions", table / f"{48:020d}") == rows[2:]
    assert "GROUPHASH" in shown("transactions", tmp_path, "--hex")


def test_damage_ends_a_state_table_and_is_named(tmp_path, dump):
    unit = bytes.fromhex(vectors()["tran_statetable_unit_31"]["hex"])
    file = tmp_path / f"{0:020d}"
    file.write_bytes(unit + b"\x01" + bytes(23))
    *rows, end = dump("transactions", tmp_path, code=1)
    assert len(rows) == 1 and (end["position"], end["reason"]) == (24, "no unit of a state table")


def test_a_store_without_a_state_table_says_so(tmp_path, shown):
    assert "no state table of transactions" in shown("transactions", tmp_path, code=1)
