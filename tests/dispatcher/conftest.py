"""Both disks for the engine's tests."""

import pytest

from tests.support.disks import Place, real_place, simulated_place


@pytest.fixture(params=["simulated", "real"])
def place(request, tmp_path) -> Place:
    return simulated_place() if request.param == "simulated" else real_place(tmp_path)
