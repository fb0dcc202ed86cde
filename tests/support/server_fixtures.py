"""Object stores of this machine as fixtures: a conftest imports those that its tests ask for.

One that is not installed skips what it would judge.
"""

import pytest

from tests.support import azure_servers, google_servers, s3_servers


@pytest.fixture(scope="session")
def moto():
    with s3_servers.moto_server() as server:
        yield server


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory):
    program = s3_servers.versitygw()
    if program is None:
        pytest.skip("the Versity S3 Gateway is not installed: make storage-servers")
    with s3_servers.versity_server(program, tmp_path_factory.mktemp("versitygw")) as server:
        yield server


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory):
    program = google_servers.fake_gcs()
    if program is None:
        pytest.skip("fake-gcs-server is not installed: make storage-servers")
    directory = tmp_path_factory.mktemp("fake-gcs")
    with google_servers.fake_gcs_server(program, directory) as server:
        yield server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory):
    program = azure_servers.azurite()
    if program is None:
        pytest.skip("Azurite is not installed: make storage-servers")
    directory = tmp_path_factory.mktemp("azurite")
    with azure_servers.azurite_server(program, directory) as server:
        yield server
