"""Masters that are killed, paused or cut off under load, and a promotion each time: a slice of
`stratamq torture replicas`. What was answered PUT_OK, and what consumers have seen, is on the
broker that serves; and the checker sees it when it is not.
"""

import json
import shutil

import pytest
from stratamq_torture.replicas.trial import LOSSES, Stage, run_replicas
from stratamq_torture.trial import Options

from stratamq.cli.__main__ import run
from stratamq.client import Role
from tests.support.sampling import few


@pytest.mark.parametrize("seed", few([1, 2], 1))
def test_a_lost_sync_master_takes_no_promise_with_it_and_nothing_that_was_seen(seed):
    report = run_replicas(Options(3, seed))
    assert (report.failures, report.lost) == ([], 0)
    assert (report.rounds, report.promotions) == (3, 3)
    assert report.acknowledged_messages >= 3 * 50
    assert report.kills % 4 == 0  # a broker is four processes


def test_a_pair_that_starts_when_the_time_is_over_plays_one_round():
    report = run_replicas(Options(9, 6, seconds=0.1), loss="cut-off")
    assert (report.failures, report.rounds, report.promotions) == ([], 1, 1)


def test_what_an_async_master_had_not_shipped_is_lost_and_noticed():
    report = run_replicas(Options(1, 3), loss="cut-off", role=Role.ASYNC_MASTER)
    [kept] = [line for line in report.failures if "are kept in" in line]
    shutil.rmtree(kept.partition("are kept in ")[2].partition(";")[0])
    assert report.lost > 0 and not report.passed
    assert "--seed 3 --rounds 1 --loss cut-off --async-master" in kept


def test_logs_that_differ_in_one_byte_are_noticed():
    with Stage(4) as stage:
        stage.grow(20)
        assert stage.check().sentences == []
        slave = stage.brokers.other(stage.master)
        path = slave.root / "commitlog" / f"{0:020}"
        with path.open("r+b") as file:
            file.seek(200)
            byte = file.read(1)[0]
            file.seek(200)
            file.write(bytes([byte ^ 0x41]))
        found = stage.check().faults
    assert f"segment {0:020} of the two differs from byte 200 on" in found
    assert any(line.startswith("on the slave: ") for line in found)


def test_the_command_prints_one_object_and_knows_its_losses(capsys):
    assert run(["torture", "replicas", "--loss", "list"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == list(LOSSES)
    arguments = ["--rounds", "1", "--seed", "5", "--loss", "killed", "--output", "json"]
    assert run(["torture", "replicas", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rounds"], found["kills"], found["promotions"], found["lost"]) == (1, 4, 1, 0)
    assert found["acknowledged_messages"] > 50 and found["passed"]
