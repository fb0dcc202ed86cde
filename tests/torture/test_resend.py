"""Messages that are sent again are stored once; and the comparison sees what is there twice."""

import random

import pytest
from stratamq_torture.processes.resend import (
    Answers,
    Bodies,
    broken_promises,
    run_resends,
)
from stratamq_torture.trial import Options

from stratamq.client import SendResult, SendStatus
from stratamq.client.received import ReceivedMessage, split_frames
from stratamq.errors import InvalidRequestError, UnavailableError
from stratamq.formats.batch_frames import BatchEncoder, FrameShape
from stratamq.formats.producer_item import encode_item


def test_kills_and_cut_connections_store_everything_once():
    report = run_resends(Options(10, 21))
    assert (report.failures, report.lost, report.rounds) == ([], 0, 10)
    assert report.acknowledged_messages > 500
    assert ", 0 perhaps;" in report.notes[0]


def test_without_a_window_behind_a_start_nothing_is_stored_twice_either():
    """What the log cannot recognise as a repetition is reported as perhaps stored."""
    settings = ("commitlog.producer_window_bytes=0",)
    report = run_resends(Options(8, 22), settings=settings)
    assert (report.failures, report.lost) == ([], 0)


# --- the comparison ---


def stored(*messages: tuple[bytes, int]) -> list[ReceivedMessage]:
    """Bodies with their sequences, as stored in a log."""
    encoder = BatchEncoder(FrameShape(bytes(8)))
    encoder.add("t", [(body, encode_item(1, sequence)) for body, sequence in messages])
    frames = bytearray(encoder.finish()[1])
    start = 0
    for length in encoder.lengths:
        frames[start + 28 : start + 36] = start.to_bytes(8, "big")
        start += length
    return list(split_frames(frames))


@pytest.fixture
def answers() -> Answers:
    found = stored((b"a", 0), (b"b", 1))
    answers = Answers()
    for message in found:
        answers.stored(
            message.body,
            SendResult(SendStatus.PUT_OK, physical_offset=message.physical_offset),
        )
    return answers


def test_a_log_that_agrees_with_the_answers_breaks_nothing(answers):
    answers.failed(b"c", UnavailableError("", perhaps_stored=True))
    assert broken_promises(answers, stored((b"a", 0), (b"b", 1), (b"c", 2))) == (0, [])


def test_a_lost_message_is_seen(answers):
    lost, sentences = broken_promises(answers, stored((b"a", 0)))
    assert lost == 1
    assert "is at []" in sentences[0]


def test_a_message_that_is_there_twice_is_seen(answers):
    _, sentences = broken_promises(answers, stored((b"a", 0), (b"b", 1), (b"c", 2), (b"c", 3)))
    assert ["stored twice" in one for one in sentences] == [True]


def test_a_sequence_that_is_there_twice_is_seen(answers):
    _, sentences = broken_promises(answers, stored((b"a", 0), (b"b", 1), (b"c", 1)))
    assert ["2 times" in one for one in sentences] == [True]


def test_a_refused_message_that_is_there_is_seen(answers):
    answers.failed(b"c", InvalidRequestError("no such queue"))
    _, sentences = broken_promises(answers, stored((b"a", 0), (b"b", 1), (b"c", 2)))
    assert ["was refused" in one for one in sentences] == [True]


def test_bodies_of_a_producer_differ():
    bodies = Bodies("one", random.Random(1))
    drawn = [body for _ in range(50) for body in bodies.burst()]
    assert len(set(drawn)) == len(drawn)
