"""The console: the broker as pages in a browser."""

import asyncio
from functools import partial
from importlib import import_module
from types import ModuleType

from stratamq.client import AsyncClient
from stratamq.rpc.address import join_address
from stratamq.rpc.rooms import CONSOLE
from stratamq.service.front import Front
from stratamq.service.process import OBSERVE_INTERVAL_S, Service
from stratamq.service.server import run_service
from stratamq.service.sockets import listen
from stratamq_console.config import ConsoleConfig
from stratamq_console.fronting import BehindFront, listen_for_fronts
from stratamq_console.history import RateHistory
from stratamq_console.metrics import SESSIONS
from stratamq_console.other_shards import other_shards
from stratamq_console.scraping import MetricsReader
from stratamq_console.servicer import ConsoleServicer
from stratamq_console.sessions import ConsoleSessions

ANSWER_S = 5.0


async def main() -> None:
    service = Service(CONSOLE, ConsoleConfig, __doc__)
    config, clock, tls = service.config, service.clock, service.server_tls
    listening = listen(config.http_address, "the console")
    at = join_address(*listening.getsockname()[:2])
    own, front = AsyncClient(service.endpoints, timeout_s=ANSWER_S), Front(config.root)
    client_of = partial(front.client, timeout_s=ANSWER_S)
    sessions = ConsoleSessions(own, client_of, service.server.access, clock, config.idle_minutes)
    fronts, history = listen_for_fronts(config.root), RateHistory(clock)
    contexts = tls and tls.client_contexts()
    shards = other_shards(config, service.tls.credentials(), service.asks_who_calls)
    reader = MetricsReader(config.root, config.metrics_token_file, contexts)
    service.spawn(history.run(partial(service.worker("metrics").run, reader.read)))

    async def serve() -> None:
        """The pages' libraries take half a second of a processor, for which the broker's start does
        not wait; until then requests wait in the socket."""
        app, serving = await asyncio.to_thread(_libraries)
        pages = app.console_app(sessions, history, clock, config, shards)
        if fronts is not None:
            service.spawn(serving.serve_pages(BehindFront(pages, sessions), fronts, None))
        served = tls and tls.contexts(require_client_certificates=False)
        await serving.serve_pages(pages, listening, served)

    service.spawn(serve())
    servicer = ConsoleServicer(f"{'https' if tls else 'http'}://{at}{config.path}", sessions)
    service.offer(servicer)
    service.tick(lambda: OBSERVE_INTERVAL_S, lambda: SESSIONS.set(len(sessions)))

    async def close() -> None:
        await sessions.close()
        await front.close()
        await own.close()
        if shards is not None:
            await shards.close()

    await service.run(close=close, ready=True)


def _libraries() -> tuple[ModuleType, ModuleType]:
    return import_module(f"{__package__}.app"), import_module(f"{__package__}.serving")


if __name__ == "__main__":
    run_service(main)
