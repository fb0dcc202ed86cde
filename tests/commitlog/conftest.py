"""What the log's tests share."""

import pytest

from tests.support.logs import Store
from tests.support.sampling import few
from tests.support.walkers import WalkersHere

WALKS = ("alone", "ahead")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "walked_both_ways" in metafunc.fixturenames:
        metafunc.parametrize("walked_both_ways", few(WALKS, 1), indirect=True)


@pytest.fixture
def walked_both_ways(request, monkeypatch):
    """Recovery walks every segment itself, and with all but the first walked ahead: the commit
    chooses one way, `--every-call` takes both."""
    if request.param == "ahead":
        monkeypatch.setattr(Store, "new_walkers", WalkersHere)
