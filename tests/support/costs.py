"""What each test costs, and which tests are slow: `slow` is a matter of measurement.

`make test` runs the tests that are not slow, `make test-slow` the others. A test function is slow
if it costs more than `BOUND_S` of processor time, all its parameters together; `tests/slow.txt`
lists those, and the files whose tests are cheap but for the broker that they share.

Wall time says how busy the machine was; processor time is nearly the same beside any neighbour. It
is that of the test's process and of the processes it waited for: one that outlives its test (the
broker of a module's fixture) counts for the test at whose end it was waited for.

A run ends with a list of functions that are not in the list and should be. After tests have
changed, this measures a room and brings the list up to date:

    .venv/bin/python -m pytest tests/ha --costs costs.txt
    .venv/bin/python -m tests.support.costs costs.txt
"""

import re
import resource
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support import forked

ROOT = Path(__file__).parents[2]
SLOW = ROOT / "tests" / "slow.txt"
BOUND_S = 1.0
NOTICEABLE = 2
"""A function that is not listed is reported from so many times the bound on: what a fixture costs
falls to another test each time."""
ELSEWHERE = {"java", "spark", "compose", "cluster"}
"""What these tests need, `make test` leaves out whatever they cost."""
KEPT = (
    # A whole broker, with all its services.
    "tests/cli/test_up.py::"
    "test_a_message_goes_in_and_comes_out_and_ctrl_c_stops_everything_in_order",
    # Killed processes: alone, under a client that compares every byte, with a slave.
    "tests/torture/test_kill.py::test_kills_under_load_lose_nothing",
    "tests/demo/test_demo.py::test_a_slice_of_the_flights_survives_a_kill_and_compares_equal",
    "tests/ha/test_pair.py::"
    "test_a_master_that_is_killed_begins_a_generation_and_the_slave_learns_it",
    # A simulated trial of each kind.
    "tests/torture/test_simulation.py::test_a_seed_is_the_same_run_wherever_it_runs",
    "tests/torture/test_brokers.py::"
    "test_what_was_promised_is_on_the_serving_broker_and_all_logs_are_equal_in_the_end",
    "tests/torture/test_agents.py::test_one_master_answers_at_any_moment_and_one_leads_in_the_end",
    "tests/torture/test_tier.py::test_what_once_was_wrong",
    "tests/torture/test_janitor.py::"
    "test_a_clock_that_jumps_within_looks_and_between_them_lets_nothing_expire_early",
    "tests/torture/test_protocol_model.py::test_without_the_rule_a_promise_is_broken",
    # Rooms whose other tests are slow.
    "tests/tier_service/test_reading.py::test_messages_are_pulled_from_the_tier_as_from_the_log",
    "tests/agent/test_failover.py::"
    "test_a_second_agent_of_a_broker_stops_and_the_first_one_continues",
    "tests/traces/test_broker.py::test_a_send_is_one_trace_down_to_the_flush",
    "tests/monitoring/test_alerts.py::"
    "test_a_healthy_broker_lets_nothing_fire_and_a_killed_service_one",
)
"""Functions that are never slow, whatever they cost: what `make test` must not lack."""


def spent_s() -> float:
    """Processor time of this process, and of those that it or a server of its own waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + forked.spent_s()


def function_of(test: str) -> str:
    """The test's name without its parameters."""
    return test.partition("[")[0]


def file_of(test: str) -> str:
    return test.partition("::")[0]


@cache
def slow_names() -> frozenset[str]:
    return frozenset(SLOW.read_text().split())


@cache
def slow_files() -> frozenset[str]:
    return frozenset(map(file_of, slow_names()))


def is_slow(test: str) -> bool:
    return not slow_names().isdisjoint((function_of(test), file_of(test)))


def by_function(of_tests: Mapping[str, float]) -> dict[str, float]:
    costs: dict[str, float] = defaultdict(float)
    for test, cost_s in of_tests.items():
        costs[function_of(test)] += cost_s
    return costs


def chosen(slow: Iterable[str], costs: Mapping[str, float]) -> set[str]:
    """What was slow and was not measured stays, files too; functions as measured."""
    slow = {*slow}
    measured = {name for name, cost_s in costs.items() if cost_s > BOUND_S}
    functions = {name for name in measured if file_of(name) not in slow} - {*KEPT}
    return functions | {name for name in slow if name not in costs}


def is_test(name: str) -> bool:
    """Whether there is a test function of this name; a state machine of Hypothesis's is the class
    that its module assigns, with a method that it inherits."""
    path, *names = name.split("::")
    file = ROOT / path
    text = file.read_text() if file.exists() else ""
    return all(
        name == "runTest" or re.search(rf"^ *(async )?(def |class )?{name}(\(|:| = )", text, re.M)
        for name in names
    )


class Costs:
    """Measures in the process that runs a test, adds up in the one that reports. `only_slow`: files
    without a slow test are not even read, which takes a worker 20 s for all of them."""

    def __init__(self, path: Path | None, *, only_slow: bool) -> None:
        self.path = path
        self._only_slow = only_slow
        self.of_tests: dict[str, float] = defaultdict(float)
        self._since = spent_s()

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if not self._only_slow or not collection_path.name.startswith("test_"):
            return None
        path = collection_path.relative_to(ROOT).as_posix()
        return path not in slow_files() or None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if is_slow(item.nodeid):
                item.add_marker("slow")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._since = spent_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> object:
        report = yield
        now = spent_s()
        report.processor_s = now - self._since
        self._since = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not ELSEWHERE & report.keywords.keys():
            self.of_tests[report.nodeid] += getattr(report, "processor_s", 0.0)

    def pytest_sessionfinish(self) -> None:
        if self.path is not None and self.of_tests:
            costly = sorted(self.of_tests.items(), key=lambda item: -item[1])
            self.path.write_text("".join(f"{cost:.3f} {test}\n" for test, cost in costly))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        costs = by_function(self.of_tests)
        for name in sorted(chosen(slow_names(), costs) - slow_names()):
            if costs[name] > NOTICEABLE * BOUND_S:
                terminalreporter.write_line(
                    f"{name} cost {costs[name]:.1f} s of a processor: add it to tests/slow.txt"
                )


def main(path: str) -> None:
    measured = (line.split(" ", 1) for line in Path(path).read_text().splitlines())
    costs = by_function({test: float(cost) for cost, test in measured})
    names = sorted(filter(is_test, chosen(slow_names(), costs)))
    SLOW.write_text("".join(f"{name}\n" for name in names))


if __name__ == "__main__":
    main(*sys.argv[1:])
