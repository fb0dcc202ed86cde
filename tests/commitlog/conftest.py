"""What the log's tests share."""

import pytest

from tests.support.logs import Store
from tests.support.walkers import WalkersHere


@pytest.fixture(params=["alone", "ahead"])
def walked_both_ways(request, monkeypatch):
    """Recovery walks every segment itself, and then with all but the first walked ahead."""
    if request.param == "ahead":
        monkeypatch.setattr(Store, "new_walkers", WalkersHere)
