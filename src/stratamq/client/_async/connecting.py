"""From what people call a broker to a client of it."""

import os
import random as random_module
from collections.abc import Sequence

from stratamq.client._async.client import AsyncClient
from stratamq.client.checking import checked_call
from stratamq.client.client_settings import Deserializer, Hooks, Interceptor, Serializer
from stratamq.client.spans import Spans
from stratamq.errors import InvalidRequestError
from stratamq.files.clock import SystemClock
from stratamq.files.port import Clock, Random
from stratamq.rpc.credentials import Credentials
from stratamq.rpc.endpoints import parse_target
from stratamq.rpc.names import Names, Resolve, system_resolve


@checked_call
def connect_async(
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
) -> AsyncClient:
    """Make an asyncio client of the broker at `target`: its store directory, `host:port` of any of
    its services, several of these (`a:10911,b:10911`), or
    `commitlog=host:port,dispatcher=host:port,index=host:port`. It connects at the first call.

    Several addresses may belong to one cluster, whose master the client follows, or to brokers with
    different names (shards), each with its own queues of a topic. Messages then go to all shards in
    turn, or by their ordering key to one queue of one shard; readers read all shards; topics and
    groups are listed with the broker's name, and changed everywhere. A call that is for one broker
    (about a queue number, an offset, a log) raises InvalidRequestError: `broker` chooses a broker
    by its name.

    A host name stands for all addresses that `resolve`, by default the system's resolver, returns.
    It is resolved again when a broker does not answer, and every 30 s by a client that sends or
    reads, so that new shards are found.

    `credentials`: the CA certificate, token and client certificate
    (`Credentials(TlsFiles(ca=…), token=…)`); without them those that the environment names:
    STRATAMQ_TLS_CA, STRATAMQ_TOKEN_FILE and the others of `Credentials`.

    `serializer` turns the body of every message sent into bytes, `deserializer` turns a received
    body into `message.value`; `interceptors` see every message; `tracing`, a
    `stratamq.client.tracing.Tracing`, records spans of the client's calls."""
    if timeout_s <= 0:
        raise InvalidRequestError(f"timeout_s is {timeout_s}: more than 0 is expected")
    return AsyncClient(
        parse_target(target, broker, credentials, Names(resolve, clock)),
        timeout_s=timeout_s,
        retry_timeout_s=retry_timeout_s,
        hooks=Hooks(serializer, deserializer, tuple(interceptors), tracing),
        clock=clock or SystemClock(),
        random=random or random_module.SystemRandom(),
    )
