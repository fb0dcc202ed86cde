# Generated from _async/connecting.py by scripts/gen_sync_client.py (`make client`).
"""From what people call a broker to a client of it."""

import os
import random as random_module
from collections.abc import Sequence

from stratamq.client._sync.client import Client
from stratamq.client.checking import checked_call
from stratamq.client.hooks import Deserializer, Hooks, Interceptor, Serializer
from stratamq.client.spans import Spans
from stratamq.errors import InvalidRequestError
from stratamq.files.clock import SystemClock
from stratamq.files.port import Clock, Random
from stratamq.rpc.credentials import Credentials
from stratamq.rpc.endpoints import parse_target
from stratamq.rpc.names import Names, Resolve, system_resolve

LONGEST_TIMEOUT_S = 365 * 86_400.0


@checked_call
def connect(
    target: str | os.PathLike[str],
    *,
    timeout_s: float = 30.0,
    retry_timeout_s: float = 0.0,
    broker: str = "",
    credentials: Credentials | None = None,
    serializer: Serializer | None = None,
    deserializer: Deserializer | None = None,
    interceptors: Sequence[Interceptor] = (),
    tracing: Spans | None = None,
    resolve: Resolve = system_resolve,
    clock: Clock | None = None,
    random: Random | None = None,
) -> Client:
    """A client of the broker at `target`: its store directory, `host:port` of any of its
    services, several of these (`a:10911,b:10911`), or
    `commitlog=host:port,dispatcher=host:port,index=host:port`. Nothing is connected yet.

    Several addresses may be of one cluster, whose master is followed, or of brokers of several
    names (shards), each with its own queues of a topic: messages go to all of them in turn, or by
    their ordering key to one queue of one of them; readers read all; topics and groups are listed
    with the broker's name, and changed everywhere. What is of one broker (a queue by its number, an
    offset, a log) raises InvalidRequestError there: `broker` chooses one by its name.

    A host name that `resolve`, by default the system's resolver, gives several addresses for counts
    as all of them. It is resolved again when a broker does not answer, and every 30 s by a client
    that sends or reads: shards that come later are found.

    `credentials`: the CA certificate, token and client certificate
    (`Credentials(TlsFiles(ca=…), token=…)`); without them those that the environment names:
    STRATAMQ_TLS_CA, STRATAMQ_TOKEN_FILE and the others of `Credentials`.

    `serializer` makes bytes of every body that is sent, `deserializer` makes `message.value` of
    one that was received; `interceptors` see every message; `tracing`, a
    `stratamq.client.tracing.Tracing`, records spans of the client's calls."""
    if not 0 < timeout_s <= LONGEST_TIMEOUT_S:
        raise InvalidRequestError(f"timeout_s is {timeout_s}: more than 0, at most a year")
    return Client(
        parse_target(target, broker, credentials, Names(resolve, clock)),
        timeout_s=timeout_s,
        retry_timeout_s=retry_timeout_s,
        hooks=Hooks(serializer, deserializer, tuple(interceptors), tracing),
        clock=clock or SystemClock(),
        random=random or random_module.SystemRandom(),
    )
