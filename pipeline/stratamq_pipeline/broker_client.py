"""A client of a running broker, by the options of a source or a sink."""

import random
import threading
from collections.abc import Mapping

from stratamq.client import Client, Credentials, connect
from stratamq.errors import UnavailableError
from stratamq.files.clock import SystemClock
from stratamq.rpc import credentials as variables
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.credentials import credentials_of

RETRY_S = 30.0
"""So long a service that does not answer is waited for."""
_VARIABLES = {
    "tlsCa": variables.CA_VARIABLE,
    "tlsCertificate": variables.CERTIFICATE_VARIABLE,
    "tlsKey": variables.KEY_VARIABLE,
    "token": variables.TOKEN_VARIABLE,
    "tokenFile": variables.TOKEN_FILE_VARIABLE,
}


def connect_to(
    address: str, access: Mapping[str, str], broker: str = "", retry_s: float = RETRY_S
) -> Client:
    """`access`: the options of `stratamq_pipeline.access_options`; without any, the environment
    names certificates and token."""
    return connect(
        address, retry_timeout_s=retry_s, broker=broker, credentials=credentials_from(access)
    )


def credentials_from(access: Mapping[str, str]) -> Credentials | None:
    """None: those of the environment. ConfigurationError."""
    if not access:
        return None
    return credentials_of({_VARIABLES[name]: value for name, value in access.items()})


class ServiceAbsence:
    """A service that does not answer is asked again for `RETRY_S`."""

    def __init__(self) -> None:
        self._backoff = Backoff(RETRY_S, SystemClock(), random.SystemRandom())
        self._never = threading.Event()

    def ended(self) -> None:
        self._backoff.reset()

    def wait(self, error: UnavailableError) -> None:
        """Until it may be asked again. The error itself when the time is over."""
        delay_s = self._backoff.next_delay_s()
        if delay_s is None:
            raise error
        self._never.wait(delay_s)
