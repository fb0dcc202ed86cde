"""The election's value in a Lease of a real API server: that of KUBECONFIG."""

import asyncio
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratamq.election.kubernetes import ANNOTATION, KubernetesStore, lease_name
from stratamq.election.opening import open_store
from stratamq.election.store import ABSENT, StoredState
from stratamq.errors import ConfigurationError, CorruptRecordError, UnavailableError
from stratamq.files.clock import SystemClock
from stratamq.formats.election_state import ElectionState
from stratamq.rpc.credentials import Credentials
from tests.agent.store_rules import STATE, created_once_and_replaced_by_who_has_read_it

NAMESPACE = "default"


@pytest.fixture
def api():
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG is not set: no API server of Kubernetes")
    from kubernetes import client, config

    config.load_kube_config()
    return client.CoordinationV1Api()


@pytest.fixture
def cluster(api) -> Iterator[str]:
    name = f"t{secrets.token_hex(6)}"
    yield name
    api.delete_collection_namespaced_lease(
        NAMESPACE, field_selector=f"metadata.name={lease_name(name)}"
    )


def ask(cluster: str, work, timeout_s: float = 20.0):
    async def run():
        store = open_store(
            f"kubernetes://{NAMESPACE}", cluster, 30, timeout_s, SystemClock(), Credentials()
        )
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def test_a_value_is_created_once_and_replaced_by_who_has_read_it(cluster):
    ask(cluster, created_once_and_replaced_by_who_has_read_it)


def test_people_see_who_holds_the_lease_and_what_they_write_into_it_stays(cluster, api):
    ask(cluster, lambda store: store.swap(STATE, ABSENT))
    lease = api.read_namespaced_lease(lease_name(cluster), NAMESPACE)
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("a", 30)
    assert lease.spec.renew_time is not None
    body = {"metadata": {"annotations": {"owner": "us"}, "labels": {"team": "ours"}}}
    api.patch_namespaced_lease(lease_name(cluster), NAMESPACE, body)

    async def renew(store: KubernetesStore) -> None:
        found = await store.read()
        assert await store.swap(ElectionState(), found.revision)

    ask(cluster, renew)
    lease = api.read_namespaced_lease(lease_name(cluster), NAMESPACE)
    assert (lease.metadata.annotations["owner"], lease.metadata.labels) == ("us", {"team": "ours"})
    assert not lease.spec.holder_identity


def test_a_lease_that_was_deleted_is_not_replaced(cluster, api):
    async def work(store: KubernetesStore) -> None:
        revision = await store.swap(STATE, ABSENT)
        await asyncio.to_thread(api.delete_namespaced_lease, lease_name(cluster), NAMESPACE)
        assert await store.swap(STATE, revision) is None
        assert await store.read() == StoredState(None, ABSENT)

    ask(cluster, work)


def test_a_value_that_is_none_is_named(cluster, api):
    ask(cluster, lambda store: store.swap(STATE, ABSENT))
    body = {"metadata": {"annotations": {ANNOTATION: "x"}}}
    api.patch_namespaced_lease(lease_name(cluster), NAMESPACE, body)
    with pytest.raises(CorruptRecordError, match="no state of an election"):
        ask(cluster, lambda store: store.read())


def test_an_api_server_that_does_not_answer_is_unavailable(cluster, tmp_path, monkeypatch):
    text = Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8")
    away = tmp_path / "kubeconfig"
    away.write_text(text.replace(":6443", ":1"), encoding="utf-8")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(away))
    with pytest.raises(UnavailableError, match="does not answer"):
        ask(cluster, lambda store: store.read(), timeout_s=3.0)


def test_names_that_kubernetes_does_not_take_are_apart():
    assert lease_name("broker-a") == "stratamq-broker-a"
    names = {lease_name(name) for name in ("Broker_A", "broker_a", "a" * 300, "名", "-")}
    assert len(names) == 5
    assert all(len(name) <= 253 and name.islower() for name in names)


def test_outside_of_a_pod_the_namespace_is_named():
    with pytest.raises(ConfigurationError, match="namespace"):
        open_store("kubernetes://", "broker-a", 30, 1.0, SystemClock(), Credentials())
