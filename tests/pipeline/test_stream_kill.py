"""Drivers and workers are killed at random: neither a gap nor, by keys and lists, a duplicate."""

import random

import pytest

from tests.pipeline.stream_kills import trial

pytestmark = pytest.mark.spark


@pytest.mark.timeout(900)
def test_no_gap_and_nothing_twice_over_kills(broker, tmp_path):
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    found = trial(broker, tmp_path, drivers=2, workers=1, seed=seed)
    print(found)
    assert (found.missing, found.twice) == (0, 0)
    assert (found.missing_in_files, found.twice_in_files) == (0, 0)
    assert found.workers == 1 and found.messages > 200
