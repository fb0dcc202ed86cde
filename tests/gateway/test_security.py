"""Who a client of the remoting protocol is: by a signature, or by its certificate, and what it may
do then. `spec/remoting.md` 13."""

import json
import ssl

import pytest

from stratamq.client import connect
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from tests.gateway.remoting import Remoting, pull, send
from tests.gateway.test_gateway import NO_PERMISSION, OK, ROOMS, address
from tests.security.conftest import made
from tests.support.brokers import Broker
from tests.support.waiting import until

NOT_FOUND_YET = 19
RULES = (
    ("shop", "produce", "topic:orders"),
    ("shop", "consume", "topic:orders"),
    ("shop", "consume", "group:billing"),
    ("alice", "produce", "topic:orders"),
    ("alice", "observe", "broker"),
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    place = tmp_path_factory.mktemp("guarded")
    pki = made(place / "pki", "alice")
    permissions = Permissions(rules=[grant_of(*one) for one in RULES])
    secret = permissions.add_token("shop", "", signs=True)
    token = permissions.add_token("shop", "")
    file = place / "permissions.json"
    file.write_bytes(dump(permissions))
    settings = pki.settings(
        f"access.file={file}",
        "gateway.remoting_address=127.0.0.1:0",
        "gateway.repeated_send_window_ms=60000",
    )
    with Broker(place / "store", place / "logs", settings) as broker:
        broker.start(ROOMS)
        context = ssl.create_default_context(cafile=str(pki.directory / "ca.pem"))
        yield address(broker), context, secret, token, pki, broker


def heartbeat(client: Remoting, group: str) -> int:
    consumer = {"groupName": group, "subscriptionDataSet": [{"topic": "orders"}]}
    said = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [consumer]}
    return client.ask(34, json.dumps(said).encode()).code


@pytest.mark.parametrize("encrypted", [False, True], ids=["in clear, from this machine", "TLS"])
def test_a_signed_request_has_the_permissions_of_its_user(guarded, encrypted):
    where, context, secret, *_ = guarded
    with Remoting(where, context if encrypted else None, ("shop", secret)) as client:
        assert send(client, "orders", b"x").code == OK
        assert send(client, "others", b"x").code == NO_PERMISSION
        assert heartbeat(client, "billing") == OK
        assert heartbeat(client, "auditing") == NO_PERMISSION
        until(lambda: pull(client, "orders", 0).code == OK, "it is dispatched")
        assert pull(client, "orders", 0, consumerGroup="auditing").code == NO_PERMISSION


def test_the_retry_topic_of_a_group_belongs_to_who_may_consume_for_it(guarded):
    where, _, secret, *_ = guarded
    with Remoting(where, key=("shop", secret)) as client:
        assert heartbeat(client, "billing") == OK
        assert client.ask(105, topic="%RETRY%billing").code == OK
        assert pull(client, "%RETRY%billing", 0).code == NOT_FOUND_YET
        assert pull(client, "%RETRY%auditing", 0).code == NO_PERMISSION


def test_a_message_is_sent_back_by_who_may_read_it_for_the_group(guarded):
    where, _, secret, _, pki, broker = guarded
    with connect(broker.root) as client:
        own, other = (client.send(topic, b"x").physical_offset for topic in ("orders", "others"))
    with Remoting(where, key=("shop", secret)) as shop, Remoting(where, of_alice(pki)) as alice:

        def sent_back(client: Remoting, offset: int, group: str = "billing") -> int:
            return client.ask(36, group=group, offset=offset, delayLevel=0).code

        assert sent_back(shop, own) == OK
        assert sent_back(shop, own, "auditing") == NO_PERMISSION
        assert sent_back(shop, other) == NO_PERMISSION, "it would read it in its retry topic"
        assert sent_back(alice, own) == NO_PERMISSION, "who observes writes nothing"


@pytest.mark.parametrize(
    "key",
    [("shop", "guessed"), ("nobody", "guessed"), ("alice", "x"), None],
    ids=["wrong secret", "unknown user", "user without a secret", "no signature"],
)
def test_without_a_right_signature_nothing_is_done(guarded, key):
    where, context, *_ = guarded
    for tls in (None, context):
        with Remoting(where, tls, key) as client:
            reply = send(client, "orders", b"x")
            assert reply.code == NO_PERMISSION
            assert key is None or "check signature failed" in reply.remark


def test_a_token_that_the_file_does_not_keep_signs_nothing(guarded):
    where, *_, token, _, _ = guarded
    with Remoting(where, key=("shop", token)) as client:
        assert send(client, "orders", b"x").code == NO_PERMISSION


def test_a_signature_is_of_one_request_with_its_body(guarded):
    where, _, secret, *_ = guarded
    with Remoting(where, key=("shop", secret)) as client, Remoting(where) as other:
        asked = {"topic": "orders", "queueId": 0}
        assert client.ask(30, **asked).code == OK
        sent: list[bytes] = []
        client.socket, real = _Recorded(client.socket, sent), client.socket
        assert send(client, "orders", b"pay 10").code == OK
        client.socket = real
        other.socket.sendall(sent[0].replace(b"pay 10", b"pay 99"))
        assert other.receive()[1].code == NO_PERMISSION


class _Recorded:
    def __init__(self, socket, sent: list[bytes]) -> None:
        self._socket, self._sent = socket, sent

    def sendall(self, data: bytes) -> None:
        self._sent.append(data)
        self._socket.sendall(data)


def of_alice(pki) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(pki.directory / "ca.pem"))
    context.load_cert_chain(pki.directory / "alice.pem", pki.directory / "alice.key")
    return context


def test_a_send_is_no_repeated_one_of_another_user(guarded):
    where, _, secret, _, pki, _ = guarded
    with Remoting(where, key=("shop", secret)) as shop, Remoting(where, of_alice(pki)) as alice:
        sent = [send(one, "orders", b"x", UNIQ_KEY="key") for one in (shop, alice, shop)]
    assert [one.code for one in sent] == [OK] * 3
    assert sent[0] == sent[2] != sent[1]


def test_a_client_certificate_names_its_user(guarded):
    where, _, _, _, pki, _ = guarded
    with Remoting(where, of_alice(pki)) as client:
        assert send(client, "orders", b"x").code == OK
        assert pull(client, "orders", 0).code == NO_PERMISSION


def test_no_one_else_is_disturbed_by_a_handshake_that_hangs(guarded):
    where, context, secret, _, _, broker = guarded
    with Remoting(where) as hanging, Remoting(where, context, ("shop", secret)) as client:
        hanging.socket.sendall(b"\x16\x03\x01")
        assert send(client, "orders", b"x").code == OK
        assert hanging.socket.recv(1) == b"", "it is ended"
    with connect(broker.root) as direct:
        until(lambda: direct.admin.gateway_state().connections == 0, "none is left")
