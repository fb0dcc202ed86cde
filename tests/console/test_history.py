"""Rates of the last hour, and the alerts that one reading decides."""

import re
from pathlib import Path

import yaml
from stratamq_console.alarms import SIGNS, firing, watched_metrics
from stratamq_console.charts import ChartLine, lines_over_time, nice_limit
from stratamq_console.history import INTERVAL_S, LIMIT, RateHistory, RatePoint
from stratamq_console.scraping import parsed

from stratamq.rpc.rooms import SERVICES

ROOT = Path(__file__).parents[2]
SECOND_NS = 1_000_000_000


class SetClock:
    """Time as the test sets it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_ns(self) -> int:
        return int(self.now_s * SECOND_NS)


def history_of(*values: float | None) -> RateHistory:
    clock = SetClock()
    history = RateHistory(clock)
    for value in values:
        history.add({} if value is None else {"sent": value})
        clock.now_s += INTERVAL_S
    return history


def test_a_rate_is_the_difference_by_the_time_between():
    assert [one.per_second for one in history_of(0, 100, 150).rates("sent")] == [10.0, 5.0]
    assert history_of(0, 100, 150).rate("sent") == 5.0
    assert history_of(5).rate("sent") is None and history_of().latest() == {}


def test_a_counter_that_a_restart_began_again_counts_from_zero():
    assert [one.per_second for one in history_of(1000, 50).rates("sent")] == [5.0]


def test_a_console_that_has_just_begun_shows_minutes_and_later_the_hour():
    assert [history_of(*[1.0] * count).span_s() for count in (0, 2, 24, 25, 90, 91, LIMIT)] == [
        *(240, 240, 240, 900, 900, 3600, 3600)
    ]


def test_a_service_that_did_not_respond_leaves_a_gap():
    assert [one.per_second for one in history_of(0, None, 20, 30).rates("sent")] == [None, None, 1]


def test_an_hour_is_kept_and_no_more():
    history = history_of(*range(LIMIT + 100))
    assert len(history.rates("sent")) == LIMIT - 1


def test_a_page_of_metrics_is_read_with_its_labels():
    page = '# TYPE a counter\na_total 5.0\n# TYPE lag gauge\nlag{group="x y"} 7.0\n'
    assert parsed(page) == {"a_total": 5.0, 'lag{group="x y"}': 7.0}


def test_a_scale_ends_at_a_round_number():
    assert [nice_limit(one) for one in (0, 1, 1.1, 3, 7, 10, 11, 4999, 50_001)] == [
        *(1, 1, 2, 5, 10, 10, 20, 5000, 100_000)
    ]


def test_a_chart_breaks_its_line_where_a_value_is_not_known():
    rates = [RatePoint(1_000 * number, value) for number, value in enumerate((1, 2, None, 3, 4))]
    drawn = lines_over_time("Messages", [ChartLine("in", "in", rates)], 4_000, 60, str)
    assert drawn.count("<polyline") == 2
    assert 'aria-label="Messages, the last 1 minutes; now in: 4"' in drawn
    assert "style=" not in drawn
    assert lines_over_time("<b>", [ChartLine("in", "in", [])], 4_000, 60, str).count("<b>") == 0


# --- alerts ---


def rules() -> dict[str, str]:
    found = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in found for rule in group["rules"]}


def test_each_sign_of_an_alert_is_a_condition_of_its_rule():
    for name, signs in SIGNS.items():
        for sign in signs:
            metric, compare, limit = sign.split()
            condition = rf'{metric}{{job="stratamq"}} {compare} {re.escape(limit)}(?![\d.])'
            assert re.search(condition, rules()[name]), (name, sign)


def test_each_sign_is_read_from_a_service():
    assert set(watched_metrics()) <= set(SERVICES)


def test_an_alert_fires_by_any_of_its_signs_and_says_what_to_do():
    assert firing({}) == []
    assert firing({"commitlog_damaged_stretches": 0.0}) == []
    (damage,) = firing({"commitlog_damaged_stretches": 0.0, "index_damaged_files": 2.0})
    assert damage.name == "StrataMQDamage" and damage.action and damage.severity == "critical"
    (slave,) = firing({'ha_slave_lag_bytes{slave="a"}': 1.0, 'ha_slave_lag_bytes{slave="b"}': 1e9})
    assert slave.name == "StrataMQSlaveBehind"
