"""An election in a Lease of Kubernetes (coordination.k8s.io/v1), swapped by its resourceVersion.

The value is the annotation `stratamq-election`; holder and renewal time are set as well, for people
and tools that look at Leases. Reads are of the API server's latest. Needs `stratamq[kubernetes]`.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stratamq.election.store import ABSENT, StoredState
from stratamq.errors import ConfigurationError, UnavailableError
from stratamq.files.port import Clock
from stratamq.formats.election_state import (
    ElectionState,
    decode_election_state,
    encode_election_state,
)

ANNOTATION = "stratamq-election"
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?")
_NOT_FOUND, _CONFLICT = 404, 409
log = logging.getLogger(__name__)
LABEL = "stratamq-role"
LOOK_S, RETRY_S, ANSWER_S = 0.2, 2.0, 10.0


def lease_name(cluster: str) -> str:
    """What a cluster's Lease is called: names that Kubernetes does not take are hashed."""
    if _NAME.fullmatch(cluster):
        return f"stratamq-{cluster}"
    return f"stratamq-{hashlib.sha256(cluster.encode()).hexdigest()[:24]}"


def own_namespace() -> str:
    """Return the namespace of the pod that this process runs in. ConfigurationError outside a
    pod.
    """
    try:
        return _NAMESPACE.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigurationError(
            ["agent.store: outside of a pod name the namespace, kubernetes://NAMESPACE"]
        ) from error


def kubernetes_client() -> tuple[Any, Any]:
    """The client's module, and access to the API server: in a pod by its service account,
    elsewhere by the kubeconfig. ConfigurationError without either."""
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise ConfigurationError(
            ["agent.store is Kubernetes: install stratamq[kubernetes]"]
        ) from error
    settings = client.Configuration()
    try:
        if _NAMESPACE.exists():
            config.load_incluster_config(settings)
        else:
            config.load_kube_config(client_configuration=settings)
    except config.ConfigException as error:
        raise ConfigurationError([f"agent.store: no access to Kubernetes: {error}"]) from error
    # A swap that is sent again after a lost answer would conflict with itself.
    settings.retries = False
    return client, client.ApiClient(settings)


class KubernetesStore:
    """`ttl_s` is shown in the Lease. A call ends within `timeout_s`. ConfigurationError
    where nothing gives access to an API server."""

    def __init__(
        self, namespace: str, name: str, ttl_s: int, timeout_s: float, clock: Clock
    ) -> None:
        self._client, api_client = kubernetes_client()
        self._api = self._client.CoordinationV1Api(api_client)
        self._ttl_s = ttl_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._name, self._namespace = name, namespace
        self._found: Any = None
        """The Lease as it was read last: what others wrote into it is kept."""

    async def read(self) -> StoredState:
        """UnavailableError; CorruptRecordError."""
        try:
            lease = await self._call(self._api.read_namespaced_lease, self._name, self._namespace)
        except self._client.ApiException as error:
            if error.status != _NOT_FOUND:
                raise self._unavailable(error) from error
            self._found = None
            return StoredState(None, ABSENT)
        self._found = lease.metadata
        raw = (lease.metadata.annotations or {}).get(ANNOTATION)
        state = decode_election_state(raw.encode()) if raw is not None else None
        return StoredState(state, lease.metadata.resource_version)

    async def swap(self, state: ElectionState, revision: str) -> str | None:
        """UnavailableError: not known whether it was done."""
        body = self._lease(state, revision)
        try:
            if revision == ABSENT:
                done = await self._call(self._api.create_namespaced_lease, self._namespace, body)
            else:
                done = await self._call(
                    self._api.replace_namespaced_lease, self._name, self._namespace, body
                )
        except self._client.ApiException as error:
            if error.status in (_CONFLICT, _NOT_FOUND):
                return None
            raise self._unavailable(error) from error
        self._found = done.metadata
        return str(done.metadata.resource_version)

    async def close(self) -> None:
        await asyncio.to_thread(self._api.api_client.close)

    def _lease(self, state: ElectionState, revision: str) -> Any:
        found = self._found
        annotations = dict((found.annotations if found is not None else None) or {})
        annotations[ANNOTATION] = encode_election_state(state).decode()
        return self._client.V1Lease(
            metadata=self._client.V1ObjectMeta(
                name=self._name,
                namespace=self._namespace,
                annotations=annotations,
                labels=found.labels if found is not None else None,
                resource_version=revision or None,
                # Without it the API server makes a Lease again that was deleted meanwhile.
                uid=found.uid if found is not None and revision else None,
            ),
            spec=self._client.V1LeaseSpec(
                holder_identity=state.leader or None,
                lease_duration_seconds=self._ttl_s,
                renew_time=datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC),
            ),
        )

    async def _call(self, method: Any, *arguments: Any) -> Any:
        """On a thread. UnavailableError when the API server does not answer in time."""
        from urllib3.exceptions import HTTPError

        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.to_thread(method, *arguments, _request_timeout=self._timeout_s)
        except (HTTPError, OSError, TimeoutError) as error:
            raise UnavailableError(f"the election store does not answer: {error!r}") from error

    def _unavailable(self, error: Any) -> UnavailableError:
        return UnavailableError(
            f"the election store refuses: {error.status} {error.reason} (Lease "
            f"{self._namespace}/{self._name})"
        )


class PodLabel:
    """A pod's label with the role of its broker: a Service that selects it leads to the master.
    `pod`: this one's name. `role`: what its label is to be, "" while it is not known.
    ConfigurationError outside of Kubernetes."""

    def __init__(self, pod: str, role: Callable[[], str]) -> None:
        self._pod = pod
        self._role = role
        self._namespace = own_namespace()
        self._client, api_client = kubernetes_client()
        self._api = self._client.CoreV1Api(api_client)
        self._shown = ""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            role = self._role()
            if role in ("", self._shown):
                await asyncio.sleep(LOOK_S)
            elif await self._show(role):
                self._shown = role
            else:
                await asyncio.sleep(RETRY_S)

    async def _show(self, role: str) -> bool:
        from urllib3.exceptions import HTTPError

        body = {"metadata": {"labels": {LABEL: role}}}
        try:
            await asyncio.to_thread(
                self._api.patch_namespaced_pod,
                self._pod,
                self._namespace,
                body,
                _request_timeout=ANSWER_S,
            )
        except (self._client.ApiException, HTTPError, OSError) as error:
            log.warning("pod not labelled, retrying", extra={"reason": repr(error)})
            return False
        log.info("pod labelled", extra={"role": role})
        return True
