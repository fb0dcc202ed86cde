"""`place` is one store directory, on each of the two disks in turn."""

import pytest

from tests.support.disks import Place, real_place, simulated_place


@pytest.fixture(params=["real", "simulated"])
def place(request, tmp_path) -> Place:
    return real_place(tmp_path / "store") if request.param == "real" else simulated_place()


@pytest.fixture
def files(place):
    return place.files
