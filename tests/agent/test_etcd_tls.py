"""The election's value in a real etcd that asks its clients for certificates."""

import asyncio
import dataclasses
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from stratamq_agent.config import AgentConfig
from stratamq_bench.failover import Etcd
from stratamq_bench.ports import free_port

from stratamq.cli.tls import Authority
from stratamq.election.etcd import EtcdStore
from stratamq.election.store import ABSENT
from stratamq.errors import ConfigurationError, UnavailableError
from stratamq.rpc.credentials import Credentials, TlsFiles
from tests.agent.store_rules import STATE, created_once_and_replaced_by_who_has_read_it

TIMEOUT_S = 20.0
REFUSED_S = 4.0
"""Also a busy machine has refused by then; the store asks again until then."""


def made(directory: Path) -> Path:
    """What `stratamq tls init`, `tls issue DIR etcd --host 127.0.0.1` and `tls issue DIR agent`
    make."""
    authority = Authority(directory)
    authority.make()
    authority.issue("etcd", "etcd", ["127.0.0.1"], 2)
    authority.issue("agent", "agent", [], 2)
    return directory


@pytest.fixture(scope="module")
def pki(tmp_path_factory) -> Path:
    return made(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory) -> Path:
    return made(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory, pki) -> Iterator[Etcd]:
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (Debian: etcd-server)")
    tls = [
        f"--cert-file={pki}/etcd.pem",
        f"--key-file={pki}/etcd.key",
        f"--trusted-ca-file={pki}/ca.pem",
        "--client-cert-auth",
    ]
    server = Etcd(tmp_path_factory.mktemp("etcd"), tls)
    asyncio.run(_with_store([address(server)], files(pki), lambda store: store.read()))
    yield server
    server.close()


def address(etcd: Etcd) -> str:
    return f"127.0.0.1:{etcd.port}"


def files(of: Path, ca: Path | None = None) -> TlsFiles:
    return TlsFiles((ca or of) / "ca.pem", of / "agent.pem", of / "agent.key")


async def _with_store(endpoints, tls: TlsFiles | None, work, timeout_s=TIMEOUT_S, key="t/k"):
    store = EtcdStore(endpoints, key, timeout_s, Credentials(tls))
    try:
        return await work(store)
    finally:
        await store.close()


def test_the_right_certificate_is_let_in_also_beside_an_endpoint_that_is_away(etcd, pki):
    endpoints = [f"127.0.0.1:{free_port()}", address(etcd)]
    work = created_once_and_replaced_by_who_has_read_it
    asyncio.run(_with_store(endpoints, files(pki), work, key="t/right"))


@pytest.mark.parametrize(
    ("tls", "sentence"),
    [
        (
            lambda pki, foreign: TlsFiles(pki / "ca.pem"),
            r"set agent\.etcd_cert and agent\.etcd_key",
        ),
        (lambda pki, foreign: files(foreign, ca=pki), r"foreign.*agent\.pem has to be of the auth"),
        (lambda pki, foreign: files(pki, ca=foreign), r"foreign.*ca\.pem.*set agent\.etcd_cacert"),
        (lambda pki, foreign: None, r"write etcds:// in agent\.store"),
    ],
    ids=["no certificate", "a foreign authority", "etcd of another authority", "in clear"],
)
def test_what_keeps_an_agent_out_is_reported(etcd, pki, foreign, tls, sentence):
    with pytest.raises(UnavailableError, match=sentence):
        asyncio.run(
            _with_store([address(etcd)], tls(pki, foreign), lambda store: store.read(), REFUSED_S)
        )


def test_an_etcd_without_tls_is_named(tmp_path, pki):
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (Debian: etcd-server)")
    clear = Etcd(tmp_path)
    try:
        asyncio.run(_with_store([address(clear)], None, lambda store: store.read()))
        with pytest.raises(UnavailableError, match="does without TLS, write etcd://"):
            asyncio.run(
                _with_store([address(clear)], files(pki), lambda store: store.read(), REFUSED_S)
            )
    finally:
        clear.close()


def test_replaced_files_are_used_from_the_next_call_on_and_unusable_ones_are_not(
    etcd, pki, foreign, tmp_path, caplog
):
    caplog.set_level(logging.ERROR)
    own = tmp_path / "own"
    shutil.copytree(foreign, own)
    shutil.copy(pki / "ca.pem", own / "ca.pem")

    async def work(store: EtcdStore) -> None:
        with pytest.raises(UnavailableError):
            await store.read()
        shutil.copytree(pki, own, dirs_exist_ok=True)
        assert await store.swap(STATE, ABSENT)
        (own / "agent.pem").write_text("no certificate")
        for _ in range(2):
            assert (await store.read()).state == STATE

    asyncio.run(_with_store([address(etcd)], files(own), work, key="t/replaced", timeout_s=5.0))
    reports = [one for one in caplog.records if "TLS files for etcd rejected" in one.message]
    assert len(reports) == 1
    assert "agent.pem" in reports[0].reason


OVER_TLS = AgentConfig(root="x", store="etcds://a:1,b:2", etcd_cacert=Path("ca.pem"))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ""),
        ({"etcd_cacert": None}, "etcd_cacert: a store at etcds:// needs"),
        ({"etcd_cert": Path("a.pem")}, "belong together"),
        ({"store": "etcd://a:1"}, "are for etcds://"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(changes, fault):
    faults = list(dataclasses.replace(OVER_TLS, **changes).faults())
    assert len(faults) == bool(fault)
    assert fault in "".join(faults)


def test_a_file_that_is_not_there_is_named_at_the_start():
    with pytest.raises(ConfigurationError, match=r"ca\.pem: No such file"):
        OVER_TLS.etcd_credentials()
