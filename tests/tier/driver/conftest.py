"""Every storage that the conformance tests run against."""

import pytest

from tests.support.server_fixtures import azurite, fake_gcs, moto, versitygw  # noqa: F401
from tests.support.storages import MAKERS


@pytest.fixture(params=MAKERS, ids=list(MAKERS))
def make_storage(request, tmp_path):
    """A storage of one kind; each call opens the same place again."""
    opened = []
    make = MAKERS[request.param](request, tmp_path)

    def opening():
        opened.append(make())
        return opened[-1]

    yield opening
    for storage in opened:
        storage.close()


@pytest.fixture
def storage(make_storage):
    return make_storage()
