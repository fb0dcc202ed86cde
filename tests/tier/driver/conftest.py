"""Every storage that the conformance tests run against."""

import pytest

from tests.support import s3_servers
from tests.support.storages import MAKERS


@pytest.fixture(scope="session")
def moto():
    with s3_servers.moto_server() as server:
        yield server


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory):
    program = s3_servers.versitygw()
    if program is None:
        pytest.skip("the Versity S3 Gateway is not installed: make s3-server")
    with s3_servers.versity_server(program, tmp_path_factory.mktemp("versitygw")) as server:
        yield server


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
