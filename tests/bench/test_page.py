"""A run's JSON becomes a picture and tables: every case is in them, and nothing is made up."""

import json

import pytest
from stratamq_bench.page import BEGIN, END, fill, forecast
from stratamq_bench.report import Bar, Case, Failure, Floor, as_json

from stratamq.errors import InvalidRequestError


def document():
    floor = Floor("floor_stream", 150_000.0, {"client": 3.5, "log": 3.7})
    cpu = {"client": 4.5, "commitlog": 5.0, "dispatcher": 2.5, "index": 2.0}
    bars = (Bar("ratio", "at least", 0.6), Bar("dispatch_age_ms", "below", 1000))
    follow = Case(
        "follow-both", 80_000.0, 8e7, floor, 0.53, cpu, bars, measured={"dispatch_age_ms": 123.4}
    )
    idle = Case(
        "idle-broker", 0.0, 0.0, None, None, {}, (Bar("pss_mb", "below", 350),), pss_mb=250.0
    )
    return json.loads(as_json([follow, idle], [Failure("pull-stream", "Mismatch: other bodies")]))


def test_the_page_holds_every_case_and_every_failure():
    page = fill(f"before\n{BEGIN} -->\nold\n{END}\nafter\n", document(), "run.json", "run.svg")
    assert page.startswith("before\n")
    assert page.endswith(f"{END}\nafter\n")
    assert "old" not in page
    for expected in (
        "`follow-both`", "80,000", "0.53", "≥ 0.6; dispatch_age_ms < 1000 (123)", "✘",
        "`idle-broker`", "pss_mb < 350 (250)", "✔", "`pull-stream` failed: Mismatch: other bodies",
        "(run.svg)", "run.json",
    ):  # fmt: skip
        assert expected in page


def test_the_same_run_gives_the_same_page():
    page = fill(f"{BEGIN} -->\n{END}\n", document(), "run.json", "run.svg")
    assert fill(page, document(), "run.json", "run.svg") == page


def test_a_page_without_marks_is_left_alone():
    with pytest.raises(InvalidRequestError, match="has no lines"):
        fill("a page", document(), "run.json", "run.svg")


def test_the_picture_shows_every_bar_and_is_the_same_each_time(tmp_path):
    from stratamq_bench.picture import draw

    draw(document(), tmp_path / "a.svg")
    draw(document(), tmp_path / "b.svg")
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn == (tmp_path / "b.svg").read_text()
    for name in ("follow-both", "follow-both, dispatch_age_ms", "idle-broker, pss_mb", "commitlog"):
        assert name in drawn


def test_a_broker_is_bound_by_its_dearest_process_and_clients_can_be_added():
    found = forecast({"client": 9.0, "commitlog": 5.0, "dispatcher": 2.0}, 16)
    assert (found.dearest, found.broker_per_s) == ("commitlog", 200_000)
    assert found.machine_per_s == 1_000_000
    assert found.brokers == 5
