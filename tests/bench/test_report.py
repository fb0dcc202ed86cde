"""The report of a benchmark: which limits are met, and the JSON for programs."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console
from stratamq_bench import child
from stratamq_bench.load import Load, Mismatch, Places
from stratamq_bench.report import Bar, Case, Floor, as_json, print_table
from stratamq_bench.usage import CpuMeter, cpu_seconds, pss_mb

from stratamq.client import ReceivedMessage
from stratamq.errors import StrataError
from stratamq.formats.batch_frames import BatchEncoder, FrameShape


def case(ratio, bar, side="at least", **more):
    bars = () if bar is None else (Bar("ratio", side, bar),)
    return Case(
        "append", 100_000.0, 1e8, Floor("floor", 2e5), ratio, {"client": 4.56789}, bars, **more
    )


@pytest.mark.parametrize(
    ("ratio", "bar", "side", "met"),
    [
        (0.5, 0.5, "at least", True),
        (0.49, 0.5, "at least", False),
        (1.6, 1.6, "at most", True),
        (1.61, 1.6, "at most", False),
        (2.0, 2.0, "below", False),
        (0.1, None, "at least", None),
    ],
)
def test_a_bar_is_met_from_its_own_side(ratio, bar, side, met):
    assert case(ratio, bar, side).met is met


def test_a_case_meets_all_of_its_bars_or_none():
    late = replace(case(0.6, 0.5), p99_ms=20.0)
    late = replace(late, bars=(*late.bars, Bar("p99_ms", "below", 20)))
    assert late.met is False
    assert replace(late, p99_ms=19.9).met is True


def test_a_bar_may_be_on_what_only_one_case_measures():
    held = replace(case(0.6, None), bars=(Bar("descriptors", "below", 1000),))
    assert replace(held, measured={"descriptors": 999}).met is True
    with pytest.raises(KeyError):
        _ = held.met


def test_a_bar_has_a_side():
    with pytest.raises(ValueError, match="beside"):
        Bar("ratio", "beside", 1.0)


def test_json_names_the_machine_and_every_field_of_a_case():
    document = json.loads(as_json([case(0.6, 0.5)]))
    assert document["machine"]["cpu"]
    (found,) = document["cases"]
    wanted = {"case", "messages_per_s", "bytes_per_s", "floor", "ratio", "cpu_us_per_message"}
    wanted |= {"bar", "met", "p50_ms", "p99_ms", "p999_ms", "pss_mb"}
    assert wanted <= set(found)
    assert found["met"] is True
    assert found["bar"] == 0.5
    assert found["bars"] == [{"measure": "ratio", "side": "at least", "limit": 0.5, "met": True}]
    assert found["floor"]["name"] == "floor"
    assert found["cpu_us_per_message"] == {"client": 4.568}


def test_the_cpu_ratio_is_of_all_processes_together():
    floor = Floor("floor", 2e5, {"client": 3.0, "log": 3.0})
    cpu = {"client": 5.0, "commitlog": 7.0}
    assert Case("append", 1e5, 1e8, floor, 0.5, cpu).cpu_ratio == 0.5
    assert case(0.5, 0.5).cpu_ratio is None


def test_the_table_shows_rate_ratio_and_verdict():
    console = Console(width=160, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    print_table([case(0.6, 0.5, note="a note")], console)
    text = console.export_text()
    for expected in ("100,000", "0.60", "≥ 0.5", "yes", "client 4.57", "a note"):
        assert expected in text


def test_messages_go_to_every_topic_before_any_has_a_second_turn():
    assert Places(2, 2).in_turn == [
        ("bench-0", 0), ("bench-1", 0), ("bench-0", 1), ("bench-1", 1),
    ]  # fmt: skip
    assert len(set(Places().in_turn)) == 16


def received(load):
    encoder = BatchEncoder(FrameShape(born_host=bytes(8)))
    encoder.add("bench-0", load.rows(1))
    return ReceivedMessage(encoder.finish()[1])


def test_a_message_is_known_again_by_its_unique_key():
    load = Load(64, next_number=1500)
    Load(64).check(received(load))


def test_another_body_is_a_mismatch():
    message = received(Load(64, next_number=1500))
    body = bytearray(message.frame)
    body[body.index(Load(64).body(1500))] ^= 1
    with pytest.raises(Mismatch):
        Load(64).check(ReceivedMessage(bytes(body)))


def test_cpu_of_a_busy_process_is_seen():
    busy = (
        "import sys\nsys.stdin.readline()\n"
        "for _ in range(10**7): pass\nprint(flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        meter = CpuMeter({"it": process.pid})
        before = cpu_seconds(process.pid)
        assert process.stdout is not None and process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert meter.seconds()["it"] > 0
        assert cpu_seconds(process.pid) > before
        assert pss_mb(process.pid) > 1
        process.stdin.close()


def test_a_child_that_fails_reports_why():
    with pytest.raises(StrataError, match="as an integer"):
        child.run("floor_append.append", batch="many")
