"""When the volume will be full, as it has filled lately."""

import math

import pytest
from stratamq_commitlog.upkeep.disk_level import DiskForecast

HOUR_S = 3_600


def forecast(used, seconds: int, every_s: int = 1) -> float | None:
    """After so many seconds in which the volume was `used(second)` full."""
    found = DiskForecast(0.9)
    for second in range(0, seconds + 1, every_s):
        found.see(used(second), second * 1_000_000_000)
    return found.full_in_s


def test_a_volume_that_fills_evenly_is_full_when_the_line_reaches_the_limit():
    full_in_s = forecast(lambda second: 0.5 + 0.04 * second / HOUR_S, HOUR_S)
    assert full_in_s == pytest.approx(9 * HOUR_S, rel=0.01)


def test_nothing_is_forecast_in_the_first_ten_minutes():
    assert forecast(lambda second: 0.5 + second / HOUR_S, 8 * 60) is None
    assert forecast(lambda second: 0.5 + 0.1 * second / HOUR_S, 10 * 60) is not None


@pytest.mark.parametrize("slope", [0.0, -0.1])
def test_a_volume_that_does_not_fill_is_never_full(slope):
    assert forecast(lambda second: 0.5 + slope * second / HOUR_S, HOUR_S) == math.inf


def test_a_full_volume_is_full_now_from_the_first_look_on():
    assert forecast(lambda second: 0.91, 0) == 0.0
    assert forecast(lambda second: 0.91, 2 * HOUR_S, 60) == 0.0


def test_a_volume_that_was_freed_is_not_full_any_more():
    found = DiskForecast(0.9)
    found.see(0.95, 0)
    found.see(0.5, 1_000_000_000)
    assert found.full_in_s is None


def test_only_the_last_two_hours_count():
    def used(second: int) -> float:
        return 0.1 + 0.3 * min(second, HOUR_S) / HOUR_S

    assert forecast(used, 4 * HOUR_S, 60) == math.inf
