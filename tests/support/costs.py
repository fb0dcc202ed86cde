"""What each test costs: processor time of the test's process and of the children it waited for.

Wall time says how busy the machine was; processor time is nearly the same beside any neighbour, so
that it can decide which tests belong to the fast set. A child that outlives its test (the broker of
a module's fixture) counts for the test at whose end it was waited for.
"""

import resource
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support import forked


def spent_s() -> float:
    """Processor time of this process, and of those that it or a server of its own waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + forked.spent_s()


class Costs:
    """Measures in the process that runs a test, adds up in the one that reports."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.of_test: dict[str, float] = defaultdict(float)
        self._since = spent_s()

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
        self.of_test[report.nodeid] += report.processor_s

    def pytest_sessionfinish(self) -> None:
        if self.path is not None and self.of_test:
            costly = sorted(self.of_test.items(), key=lambda item: -item[1])
            self.path.write_text("".join(f"{cost:9.3f} {test}\n" for test, cost in costly))
