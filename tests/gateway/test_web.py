"""What browsers find at the gRPC port: health, and the console's pages, with who asks."""

import asyncio
import itertools
import socket
import ssl
from contextlib import asynccontextmanager

import grpc
import httpx
import pytest
from stratamq_gateway.messaging import web as web_module
from stratamq_gateway.messaging.asgi_calls import AsgiCall
from stratamq_gateway.messaging.http2_servers import H2cornServer, clear_server
from stratamq_gateway.messaging.server import SignedCallers
from stratamq_gateway.messaging.web import Web

from stratamq.client import connect
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from stratamq.service.access import AccessConfig, access_control
from stratamq.service.caller import NO_HOST, Caller
from stratamq.service.grpc_callers import DELEGATED, delegation_text
from tests.console.pages import CSRF
from tests.gateway.test_asgi import Served, call
from tests.gateway.test_shared_port import FROM, opened, port_of, shared
from tests.security.conftest import made
from tests.support.brokers import COMMITLOG, DISPATCHER, GATEWAY, INDEX, Broker
from tests.support.waiting import until

DEADLINE_S = 60
CONSOLE = "console"
SETTINGS = ("console.http_address=127.0.0.1:0", "gateway.grpc_address=127.0.0.1:0")
ROOMS = (COMMITLOG, DISPATCHER, INDEX, CONSOLE, GATEWAY)
FAR = Caller("192.0.2.7", 5000)
NEAR = Caller("127.0.0.1", 5000)
LIVE = "/console/live/events?topic=live"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("web")
    with Broker(place / "store", place / "logs", SETTINGS) as broker:
        yield broker.start(ROOMS)


def port_of_gateway(broker) -> str:
    with connect(broker.root) as client:
        return client.admin.gateway_state().grpc_address


@asynccontextmanager
async def served(broker, caller=None):
    """The port over the broker's console: what answers requests, and a browser that all take for
    the caller, or for who connects."""
    seen = (lambda scope: caller) if caller else SignedCallers(None, encrypted=False).of_request
    web = Web(broker.root, seen)
    server = H2cornServer("text", True, Served().methods, 1000, web)
    address = server.listen("127.0.0.1:0", None)
    tasks = []
    await server.start(lambda work: tasks.append(asyncio.ensure_future(work)))
    transport = httpx.AsyncHTTPTransport(local_address=FROM)
    async with (
        asyncio.timeout(DEADLINE_S),
        httpx.AsyncClient(base_url=f"http://{address}", transport=transport) as http,
    ):
        yield web, http, server.close
    await server.close()
    await asyncio.gather(*tasks)


def test_the_port_of_a_gateway_has_health_and_pages_beside_its_calls(broker):
    address = port_of_gateway(broker)
    with httpx.Client(base_url=f"http://{address}", timeout=DEADLINE_S) as http:
        assert http.get("/health").text == "serving\n"
        assert http.get("/").status_code == 404 and "/console/" in http.get("/").text
        page = http.get("/console", follow_redirects=True)
        assert page.status_code == 200 and "commitlog" in page.text
        style = http.get("/console/static/style.css")
        assert style.headers["content-type"].startswith("text/css") and len(style.content) > 1000
        assert http.head("/console/").status_code == 200
        form = {"csrf": CSRF.search(http.get("/console/topics").text)[1], "name": "by-form"}
        done = http.post("/console/topics", data={**form, "queues": "3"})
        assert done.headers.get("location", "").startswith("/console/topics/by-form"), done.text
    with connect(address) as client:
        assert client.topics("by-form")[0].read_queue_count == 3
    assert "Traceback" not in broker.output(GATEWAY)


async def test_what_a_client_says_of_itself_makes_it_nobody_else(broker):
    said = {
        "X-Forwarded-For": "127.0.0.1",
        "Forwarded": "for=127.0.0.1",
        "X-Real-IP": "127.0.0.1",
        DELEGATED: delegation_text(NEAR).decode(),
    }
    async with served(broker, FAR) as (_, http, _close):
        for headers in ({}, said):
            page = await http.get("/console/", headers=headers)
            assert page.status_code == 403 and "access.file" in page.text


async def test_the_console_is_told_whose_page_asks(broker):
    said = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    async with served(broker, NEAR) as (_, http, _close):
        page = await http.get("/console/", headers=said)
        assert page.status_code == 403 and "another site" in page.text
        opened = said | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert (await http.get("/console/", headers=opened)).status_code == 200


async def test_who_asks_is_who_has_connected(broker):
    async with served(broker) as (web, http, _close):
        asked = []
        of_request, web._caller_of = web._caller_of, lambda scope: asked.append(scope) or NEAR
        await http.get("/console/", headers={"X-Forwarded-For": "192.0.2.7"})
        assert of_request(asked[0]).host == FROM


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/console/%0d%0aX-A:%20b", {}, 404),
        ("/console/../console/", {}, 200),
        ("/consolette", {}, 404),
        ("/console//evil.example", {}, 404),
    ],
)
async def test_strange_paths_are_passed_on_as_they_are_or_not_at_all(broker, path, headers, status):
    async with served(broker, NEAR) as (_, http, _close):
        assert (await http.get(path, headers=headers)).status_code == status


async def test_a_form_that_is_too_large_or_without_a_length_is_refused(broker):
    async def endless():
        yield b"a=b"

    async with served(broker, NEAR) as (_, http, _close):
        assert (await http.post("/console/logout", content=endless())).status_code == 411
        reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
        size = web_module.MAX_BODY_BYTES + 1
        head = f"POST /console/logout HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"
        writer.write(head.encode())
        assert b" 413 " in await reader.readline()
        writer.close()


async def test_live_pages_are_passed_on_as_they_come_and_end_with_their_readers(broker, capfd):
    with connect(broker.root) as client:
        client.send("live", b"x")
    async with served(broker, NEAR) as (web, http, close):
        async with http.stream("GET", LIVE) as live:
            assert live.status_code == 200, await live.aread()
            assert live.headers["content-type"].startswith("text/event-stream")
            first = await anext(live.aiter_bytes())
            assert first and web._open.total() == 1
        while web._open:
            await asyncio.sleep(0.01)
        async with http.stream("GET", LIVE) as live:
            rest = live.aiter_bytes()
            await anext(rest)
            await close()
            async for _ in rest:  # the answer is whole: a browser comes again
                pass
    assert "failed" not in "".join(capfd.readouterr()), "what h2corn prints"


async def test_pages_that_are_open_at_a_time_have_a_limit(broker, monkeypatch):
    monkeypatch.setattr(web_module, "LIMIT_OF_A_HOST", 1)
    with connect(broker.root) as client:
        client.send("live", b"x")
    async with (
        served(broker, NEAR) as (_, http, _close),
        http.stream("GET", LIVE) as live,
    ):
        await anext(live.aiter_bytes())
        page = await http.get("/console/")
        assert page.status_code == 503 and "too many pages" in page.text


async def test_a_socket_of_the_web_and_calls_over_http_1_are_refused(broker, capfd):
    async with served(broker, NEAR) as (_, http, _close):
        host, port = http.base_url.host, http.base_url.port
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(
            b"GET /console/ HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert b" 403 " in await reader.readline()
        writer.close()
        headers = {"Content-Type": "application/grpc", "TE": "trailers"}
        page = await http.post("/t/Echo", headers=headers, content=b"\0\0\0\0\0")
        assert page.status_code == 415
        async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
            assert (await call(channel, "Echo", b"hello")).name == "hello"
    assert "Traceback" not in "".join(capfd.readouterr())


def test_a_gateway_may_leave_the_pages_out():
    serve = clear_server("h2corn", "text", serves_web=False)
    assert not serve({}, 1000, lambda *given: None).takes_requests


async def test_without_a_console_the_port_says_so(tmp_path):
    class Nowhere:
        root = tmp_path

    async with served(Nowhere, NEAR) as (_, http, _close):
        page = await http.get("/console/")
        assert page.status_code == 503 and "not running" in page.text
        assert (await http.get("/health")).status_code == 200


def context_of(pki, user: str = "", *alpn: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=pki.directory / "ca.pem")
    if user:
        context.load_cert_chain(pki.directory / f"{user}.pem", pki.directory / f"{user}.key")
    context.set_alpn_protocols(list(alpn or ("h2", "http/1.1")))
    return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return made(tmp_path_factory.mktemp("pki"), "alice", "no user")


async def test_tls_of_browsers_ends_at_the_port_and_who_they_are_is_known(certificates, tmp_path):
    permissions = Permissions(rules=[grant_of("alice", "operate", "broker")])
    (tmp_path / "permissions.json").write_bytes(dump(permissions))
    access = access_control(AccessConfig(file=tmp_path / "permissions.json"), ())
    callers = SignedCallers(access, encrypted=True)
    async with shared(certificates) as one:
        callers.shared = one.port
        for user, alpn in itertools.product(
            ("alice", "", "no user"), (("http/1.1",), ("h2", "http/1.1"))
        ):
            context = context_of(certificates, user, *alpn)
            _, writer = await asyncio.open_connection(
                *one.where, local_addr=(FROM, 0), ssl=context, server_hostname="localhost"
            )
            own_port = writer.get_extra_info("sockname")[1]
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == alpn[0]
            writer.write(b"hello")
            reader, inner = await one.clear.get()
            assert await reader.readexactly(5) == b"hello"
            scope = {"client": ("127.0.0.1", port_of(inner)), "headers": ()}
            name = user if user != "no user" else ""
            assert callers.of_request(scope) == Caller(FROM, own_port, True, name)
            assert callers.identify(AsgiCall(scope), "") == Caller(FROM, own_port, True, user)
            writer.close()
            while callers.of_request(scope).host == FROM:
                await asyncio.sleep(0.01)
            assert callers.of_request(scope) == Caller(NO_HOST), "nobody of this machine"


async def test_those_who_offer_h2_alone_have_grpcs_own_tls(certificates):
    async with shared(certificates) as one:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            context_of(certificates, "", "h2").wrap_bio(incoming, outgoing).do_handshake()
        hello = outgoing.read()
        _, writer = await opened(one.where, hello)
        reader, _ = await one.encrypted.get()
        assert await reader.readexactly(len(hello)) == hello
        writer.close()


async def test_a_handshake_that_comes_in_pieces_is_read_whole(certificates):
    async with shared(certificates) as one:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = context_of(certificates)
        secured = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            secured.do_handshake()
        reader, writer = await opened(one.where, b"")
        hello = outgoing.read()
        for piece in (hello[:1], hello[1:7], hello[7:100], hello[100:]):
            writer.write(piece)
            await asyncio.sleep(0.05)
        while True:
            incoming.write(await reader.read(1 << 16))
            try:
                secured.do_handshake()
                break
            except ssl.SSLWantReadError:
                continue
        secured.write(b"hello")
        writer.write(outgoing.read())
        inner, _ = await one.clear.get()
        assert await inner.readexactly(5) == b"hello"
        writer.close()


def test_a_user_logs_in_behind_the_port_with_tls(certificates, tmp_path):
    permissions = Permissions(
        rules=[grant_of(one, "operate", "broker") for one in ("ops", "alice")]
    )
    token = permissions.add_token("ops", "2026-11-28")
    file = tmp_path / "permissions.json"
    file.write_bytes(dump(permissions))
    settings = [*SETTINGS, f"access.file={file}", *certificates.settings()]
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start(ROOMS)
        address = port_of_gateway(broker)
        until(lambda: socket.create_connection(address.split(":")), "the port is there")
        with httpx.Client(
            base_url=f"https://{address}", verify=context_of(certificates), timeout=DEADLINE_S
        ) as http:
            form = http.get("/console/", follow_redirects=True)
            assert str(form.url).endswith("/console/login?to=%2F")
            given = {"csrf": CSRF.search(form.text)[1], "token": token, "to": "/topics"}
            done = http.post("/console/login", data=given)
            assert done.headers["location"] == "/console/topics"
            assert "Secure" in done.headers["set-cookie"]
            assert "ops" in http.get("/console/topics").text
        with httpx.Client(verify=context_of(certificates, "alice"), timeout=DEADLINE_S) as http:
            page = http.get(f"https://{address}/console/")
            assert page.status_code == 200 and "alice" in page.text
        assert "Traceback" not in broker.output(GATEWAY)
