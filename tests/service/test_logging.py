"""Structured events, for people and for programs."""

import io
import json
import logging

import pytest

from stratamq.service.logging import DEFECTS, LINES_A_SECOND, PEERS, configure


@pytest.fixture
def logged():
    """Configures the root logger onto a string and restores it afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()

    def start(**options) -> io.StringIO:
        configure("commitlog", stream=stream, **options)
        return stream

    yield start
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


log = logging.getLogger("stratamq_commitlog.engine")


def test_a_text_line_holds_time_level_service_event_and_fields(logged):
    stream = logged()
    log.info("segment rolled", extra={"start_offset": 1 << 30, "why": "no room left"})
    time, rest = stream.getvalue().split(" ", 1)
    assert time.endswith("Z")
    assert rest == "INFO    commitlog segment rolled start_offset=1073741824 why='no room left'\n"


def test_a_json_line_is_one_object_with_typed_fields(logged):
    stream = logged(json=True)
    log.warning("disk filling", extra={"free_bytes": 5, "path": "a b\n", "other": {1}})
    [line] = stream.getvalue().splitlines()
    event = json.loads(line)
    time = event.pop("time")
    assert time.endswith("Z")
    assert event == {
        "level": "WARNING",
        "service": "commitlog",
        "logger": "stratamq_commitlog.engine",
        "event": "disk filling",
        "free_bytes": 5,
        "path": "a b\n",
        "other": "{1}",
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_a_traceback_is_kept(logged, as_json):
    stream = logged(json=as_json)
    try:
        raise ValueError("inner words")
    except ValueError:
        log.exception("call failed")
    text = stream.getvalue()
    assert "Traceback" in text
    assert "inner words" in text
    assert len(text.splitlines()) == (1 if as_json else text.count("\n"))


def test_text_from_outside_cannot_forge_an_event(logged):
    stream = logged()
    log.info("bad\nname", extra={"topic": "x\n2026-01-01T00:00:00.000Z INFO forged"})
    assert len(stream.getvalue().splitlines()) == 1


def test_events_below_the_level_are_not_written(logged):
    stream = logged(level="WARNING")
    log.info("quiet")
    assert stream.getvalue() == ""


def test_configuring_twice_writes_once(logged):
    logged()
    stream = logged()
    log.info("once")
    assert stream.getvalue().count("once") == 1


@pytest.mark.parametrize("logger", [PEERS, DEFECTS])
def test_peers_do_not_fill_the_log(logged, logger):
    stream = logged()
    for number in range(1_000):
        logging.getLogger(logger).warning("closed a connection", extra={"peer": number})
    begun_and_ended = 2  # seconds, if the test runs across the end of one
    assert 1 <= len(stream.getvalue().splitlines()) <= begun_and_ended * LINES_A_SECOND
