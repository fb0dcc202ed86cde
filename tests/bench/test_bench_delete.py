"""`stratamq bench delete`, briefly: something is deleted, and waits count from due times."""

import json

import numpy as np
from stratamq_bench.pacing import Span

from tests.cli.processes import stratamq


def test_appends_are_timed_while_segments_are_deleted(tmp_path):
    done = stratamq(
        "bench", "delete", "--dir", str(tmp_path), "--seconds", "0.5", "--rounds", "1",
        "--deleted-mib", "8", "--segment-mib", "1", "--output", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    (case,) = json.loads(done.stdout)["cases"]
    assert [(bar["side"], bar["limit"]) for bar in case["bars"]] == [("at most", 2.0)]
    assert case["messages"] > 500
    assert 0 < case["p50_ms"] <= case["p99_ms"] <= case["p999_ms"]
    assert case["ratio"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_message_belongs_to_the_span_in_which_it_was_due():
    answers = np.array([[10, 1], [20, 2], [30, 3], [40, 4]])
    assert Span(20, 40).of(answers).tolist() == [2, 3]
