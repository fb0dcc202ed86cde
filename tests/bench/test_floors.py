"""The floors process real frames and report the result as one JSON object."""

import json
import os
import struct
import subprocess
import sys

import numpy as np
import pytest
from stratamq_bench.floor_append import Segment, encode_batch

from stratamq.formats.frame import Frame, decode
from stratamq.formats.property_crc import check_property_crc


def run_floor(function, *arguments, **more):
    words = [*arguments, *(f"{name}={value}" for name, value in more.items())]
    command = [sys.executable, "-m", "stratamq_bench.child", function, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_floor_appends_frames_that_our_codec_reads(tmp_path):
    bodies = [os.urandom(100) for _ in range(5)]
    lengths, frames = encode_batch(bodies, first_key=7)
    segment = Segment(str(tmp_path))
    assert segment.append(lengths, frames) == 0
    assert segment.append(lengths, frames) == 5
    position = len(frames)
    for number, size in enumerate(np.frombuffer(lengths, ">u4").tolist()):
        frame = decode(segment.bytes[position : position + size].tobytes())
        assert isinstance(frame, Frame)
        assert frame.body == bodies[number]
        assert frame.queue_offset == 5 + number
        assert frame.physical_offset == position
        assert frame.properties["UNIQ_KEY"] == f"{7 + number:032X}"
        position += size
    segment.close()


@pytest.mark.parametrize("place", [0, 4, 8, 200])
def test_the_floor_checks_length_magic_and_body(tmp_path, place):
    lengths, frames = encode_batch([os.urandom(200)])
    damaged = bytearray(frames)
    damaged[place] ^= 1
    segment = Segment(str(tmp_path))
    with pytest.raises(ValueError):
        segment.append(lengths, bytes(damaged))
    segment.close()


def test_floor_append_reports_rate_and_cpu(tmp_path):
    answer = run_floor("floor_append.append", seconds=0.2, batch=8, directory=tmp_path)
    assert answer["messages_per_s"] > 0
    assert answer["cpu_us_per_message"] > 0


def test_floor_append_seals_whole_records_when_asked(tmp_path):
    bodies = [os.urandom(200), os.urandom(300)]
    lengths, frames = encode_batch(bodies, record_crc=True)
    segment = Segment(str(tmp_path), record_crc=True)
    segment.append(lengths, frames)
    segment.append(lengths, frames)
    stored = bytes(segment.bytes[: segment.position])
    position = 0
    for size in struct.unpack(">2I", lengths) * 2:
        assert check_property_crc(stored[position : position + size]) is True
        position += size
    assert position == len(stored)
    segment.close()


OPTIONS = [[], ["sync=true"], ["sync=true", "record_crc=true"]]


@pytest.mark.parametrize("options", OPTIONS, ids=["async", "sync", "sealed"])
def test_floor_stream_reports_both_processes(tmp_path, options):
    answer = run_floor("floors.stream", *options, seconds=0.3, batch=8, directory=tmp_path)
    assert answer["messages_per_s"] > 0
    assert set(answer["cpu_us_per_message"]) == {"client", "log"}


def test_floor_pull_reports_both_processes(tmp_path):
    answer = run_floor("floors.pull", seconds=0.3, directory=tmp_path)
    assert answer["messages_per_s"] > 0
    assert set(answer["cpu_us_per_message"]) == {"client", "server"}


@pytest.mark.parametrize("options", [[], ["sync=true"]], ids=["echo", "sync"])
def test_floor_unary_reports_latencies_and_both_processes(tmp_path, options):
    how = {"seconds": 0.3, "warm_up": 0.1, "in_flight": 4, "directory": tmp_path}
    answer = run_floor("floors.unary", *options, **how)
    assert answer["messages_per_s"] > 0
    assert 0 < answer["p50_ms"] <= answer["p99_ms"] <= answer["p999_ms"]
    assert set(answer["cpu_us_per_message"]) == {"client", "server"}


def test_floor_replicate_reports_three_processes(tmp_path):
    answer = run_floor("floors.replicate", seconds=0.3, warm_up=0.1, directory=tmp_path)
    assert answer["messages_per_s"] > 0
    assert set(answer["cpu_us_per_message"]) == {"master", "replication", "log"}
