"""The tier equals the log after crashes, pauses, promotions, lost answers and torn writes; with a
rule switched off it does not."""

import asyncio

import pytest
from stratamq_torture.tier.simulation import TRIAL, Simulation
from stratamq_torture.trial import Options

from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.reading.manifests import ManifestQueue
from stratamq.tier.restoring import restoring
from stratamq.tier.restoring.merging import QueueCursor

OPERATIONS = 60


def test_every_message_of_the_log_is_in_the_tier_once_and_found_by_its_key():
    report = TRIAL.simulate(Options(20, 0))
    assert (report.failures, report.lost) == ([], 0)
    assert report.acknowledged_messages > 500
    assert report.promotions > 0


def test_a_seed_does_the_same_again():
    first, again = (Simulation(3, trace=True).run(OPERATIONS) for _ in range(2))
    assert len(first.trace) > OPERATIONS
    assert first.trace == again.trace
    assert Simulation(4, trace=True).run(OPERATIONS).trace != first.trace


@pytest.mark.parametrize(
    ("rule", "first_seed"),
    [("swap", 143), ("claim", 8), ("hold", 16), ("places", 267), ("lost", 76), ("clock", 134)],
)
def test_a_seed_fails_without_a_rule(rule, first_seed):
    report = TRIAL.simulate(Options(8, first_seed, without=(rule,)))
    assert not report.passed


def test_a_clock_that_is_set_back_holds_up_no_upload():
    simulation = Simulation(1)
    simulation._backend.settle()

    caught_up = []

    async def scenario() -> None:
        simulation._start(simulation._log)
        (process,) = simulation._processes
        await simulation._append()
        simulation._log.flushed = simulation._log.end
        while process.tenure is None or process.tenure.position < simulation._log.end:
            simulation._announce()
            await asyncio.sleep(0.5)  # until it is read, and waits for more
        caught_up.append(process.caught_up)
        simulation._jumps.ahead_ms = -360_000_000
        for _ in range(100):
            simulation._announce()
            await asyncio.sleep(10)
        caught_up.append(process.caught_up)

    assert simulation.run_virtually(scenario()).violation is None
    assert caught_up == [False, True]


def test_a_gap_stays_when_a_promoted_log_begins_further_back():
    """An earlier master, which had deleted them, recorded the messages as lost."""
    assert Simulation(76).run(100).violation is None


class FromWholePartsOn(QueueCursor):
    """The messages from the first part on that begins at `first` or behind it."""

    def __init__(
        self, place: QueuePlace, found: ManifestQueue, first: int, most_bytes: int
    ) -> None:
        parts = [part.first for _, all_parts in found.parts for part in all_parts]
        begins = next((one for one in parts if one >= first), found.manifest.end_offset)
        super().__init__(place, found, begins, most_bytes)


def test_a_seed_fails_where_a_restore_begins_with_a_whole_part(monkeypatch):
    assert Simulation(21).run(OPERATIONS).violation is None
    monkeypatch.setattr(restoring, "QueueCursor", FromWholePartsOn)
    violation = Simulation(21).run(OPERATIONS).violation
    assert violation is not None
    assert violation.rule == "restore"


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(37, id="a purged message that was found by its key"),
        pytest.param(48, id="what was cut, and counted as committed by an earlier writer"),
        pytest.param(118, id="a hole behind a hole"),
        pytest.param(134, id="keys of messages that took the place of others"),
        pytest.param(267, id="another's messages where the log's own were deleted by force"),
        pytest.param(314, id="an index file that a stopped writer wrote over"),
        pytest.param(1210, id="offsets given again below what retention had deleted"),
        pytest.param(1260, id="a second batch that differs where the first was the same"),
        pytest.param(1811, id="a queue that a stopped earlier master began after the take-over"),
        pytest.param(2339, id="keys of a batch that waits to be indexed"),
        pytest.param(4242, id="a queue without messages that the promoted log does not know"),
        pytest.param(7862, id="two writers of one log at one place of a directory"),
    ],
)
def test_what_once_was_wrong(seed):
    assert Simulation(seed).run(OPERATIONS).violation is None
