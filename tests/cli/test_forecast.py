"""What `stratamq status` reports of a volume that fills."""

import pytest

from stratamq.cli.status import forecast

HOUR, DAY = 3_600, 86_400


@pytest.mark.parametrize(
    ("full_in_s", "text"),
    [
        (None, ""),
        (40 * DAY, ""),
        (9 * HOUR + 59, " (too full for messages in 9 h as it fills now)"),
        (2 * HOUR - 1, " (too full for messages in 119 min as it fills now)"),
        (0, " (too full for messages)"),
    ],
)
def test_the_forecast_is_in_hours_in_minutes_when_it_is_near_and_not_of_the_far_future(
    full_in_s, text
):
    assert forecast(full_in_s) == text
