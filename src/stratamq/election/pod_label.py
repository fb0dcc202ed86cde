"""A pod's label with the role of its broker: a Service that selects it leads to the master."""

import asyncio
import logging
from collections.abc import Callable

from stratamq.election.kubernetes import kubernetes_client, own_namespace

log = logging.getLogger(__name__)

LABEL = "stratamq-role"
LOOK_S, RETRY_S, ANSWER_S = 0.2, 2.0, 10.0


class PodLabel:
    """`pod`: this one's name. `role`: what its label is to be, "" while it is not known.
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
