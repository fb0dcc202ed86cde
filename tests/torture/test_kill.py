"""Real services killed under load lose nothing; and the checker sees what it is there to see."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from stratamq_torture.processes.harness import INDEX_ITEMS, INDEX_SLOTS, SEGMENT_BYTES, Stage
from stratamq_torture.processes.kill import POINTS, run_kills
from stratamq_torture.processes.ledger import LogImage, check_files
from stratamq_torture.trial import Options

from stratamq.formats.index_layout import item_position
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES


def test_kills_under_load_lose_nothing():
    report = run_kills(Options(2, 11))
    assert report.failures == []
    assert report.lost == 0
    assert report.kills > 0
    assert report.acknowledged_messages > 200


def test_a_log_killed_in_its_recovery_loses_nothing():
    report = run_kills(Options(1, 12), point="recovery")
    assert (report.failures, report.lost) == ([], 0)
    assert report.kills == 4


def test_every_point_states_when_it_strikes():
    assert len(POINTS) >= 20
    assert [name for name, function in POINTS.items() if not function.__doc__] == []


# --- the checker detects damage ---


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """A broker at rest, some hundred messages in it."""
    with Stage(1, ()) as stage:
        stage.grow(600)
        assert stage.check().sentences == []
        yield stage


@pytest.fixture(scope="module")
def stopped(stage, tmp_path_factory) -> tuple[Path, LogImage]:
    """A copy of its files after a clean stop, and what the log held."""
    assert stage.finish().sentences == []
    root = tmp_path_factory.mktemp("stopped") / "store"
    shutil.copytree(stage.root, root)
    return root, stage.checker.image


def anew(stage: Stage) -> list[str]:
    stage.checker.forget()
    return stage.check().sentences


def test_a_missing_message_is_noticed(stage):
    key, promise = next(iter(stage.ledger.acknowledged.items()))
    never_sent = stage.messages.unique_key(0, 10**9)
    stage.ledger.acknowledged[never_sent] = promise
    (sentence,) = anew(stage)
    del stage.ledger.acknowledged[never_sent]
    assert f"lost: {never_sent}" in sentence and "nowhere" in sentence
    assert key in stage.ledger.acknowledged


def test_a_message_at_another_place_is_noticed(stage):
    key, promise = next(iter(stage.ledger.acknowledged.items()))
    stage.ledger.acknowledged[key] = replace(promise, queue_offset=promise.queue_offset + 1)
    (sentence,) = anew(stage)
    stage.ledger.acknowledged[key] = promise
    assert f"lost: {key}" in sentence


def test_a_refused_message_that_is_stored_is_noticed(stage):
    key = next(iter(stage.ledger.acknowledged))
    stage.ledger.refused[key] = "disk full"
    (sentence,) = anew(stage)
    del stage.ledger.refused[key]
    assert "was refused" in sentence


def test_what_consumers_saw_and_is_no_longer_there_is_noticed(stage):
    seen = next(iter(stage.ledger.seen.values()))
    seen[10**6] = (0, 0)
    (sentence,) = anew(stage)
    del seen[10**6]
    assert "consumers" in sentence and "ends at" in sentence


@pytest.mark.parametrize("producer", [0, 1, 2])
def test_a_second_copy_is_noticed_whatever_its_producer(stage, producer):
    image = stage.checker.image
    stored = next(s for s in image.in_order if stage.messages.origin(s.unique_key)[0] == producer)
    image.by_key[stored.unique_key].append(stored)
    (sentence, *_) = stage.check().sentences
    assert "is there 2 times" in sentence
    assert anew(stage) == []


def damaged(stopped: tuple[Path, LogImage], tmp_path: Path, path: str, position: int) -> list[str]:
    """What the checker reports when one byte of one file is changed."""
    root, image = stopped
    copy = tmp_path / "store"
    shutil.copytree(root, copy)
    with (copy / path).open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x41]))
    return check_files(copy, image, INDEX_SLOTS, INDEX_ITEMS)


def test_the_files_of_a_stopped_store_agree(stopped):
    root, image = stopped
    assert check_files(root, image, INDEX_SLOTS, INDEX_ITEMS) == []


def test_a_damaged_body_in_the_files_is_noticed(stopped, tmp_path):
    assert damaged(stopped, tmp_path, f"commitlog/{0:020}", 200)


def test_bytes_behind_the_end_of_the_log_are_noticed(stopped, tmp_path):
    end = stopped[1].end
    segment, position = end - end % SEGMENT_BYTES, end % SEGMENT_BYTES
    (sentence,) = damaged(stopped, tmp_path, f"commitlog/{segment:020}", position + 100)
    assert "behind the log's end" in sentence


def test_a_wrong_unit_of_a_queue_is_noticed(stopped, tmp_path):
    topic, queue_id = next(iter(stopped[1].queues))
    path = f"consumequeue/{topic}/{queue_id}/{0:020}"
    (sentence,) = damaged(stopped, tmp_path, path, 3 * QUEUE_UNIT_BYTES + 7)
    assert "differ from queue offset 3 on" in sentence


def test_a_wrong_item_of_the_index_is_noticed(stopped, tmp_path):
    name = min(each.name for each in (stopped[0] / "index").iterdir())
    position = item_position(5, INDEX_SLOTS) + 11  # the last byte of its log offset
    (sentence,) = damaged(stopped, tmp_path, f"index/{name}", position)
    assert "1 items missing, 1 that stand for nothing" in sentence
