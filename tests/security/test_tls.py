"""TLS on every listener, and what it keeps out. The services are processes."""

import errno
import os
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratamq.client import Client, Credentials, SendStatus, TlsFiles, connect
from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq.rpc import discovery
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, HA, INDEX
from stratamq.service.tls import ServerTls
from tests.ha.pairs import Pair
from tests.security.conftest import HOSTS, Pki, made
from tests.security.recording import Recorder
from tests.support.brokers import Broker
from tests.support.waiting import until

ROOMS = (COMMITLOG, DISPATCHER, INDEX)
BODY = b"the body of a message that is read at its ends alone"
TOKEN = "a-token-that-is-read-at-its-ends-alone"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, pki: Pki) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("broker")
    with Broker(directory / "store", directory / "logs", pki.settings()) as broker:
        yield broker.start(ROOMS)


def addresses(broker: Broker, rooms=ROOMS) -> dict[str, str]:
    found = {room: discovery.read(broker.root, room) for room in rooms}
    return {room: one.address for room, one in found.items() if one is not None}


def log_address(broker: Broker) -> str:
    return addresses(broker)[COMMITLOG]


def sent_and_read(client: Client) -> list[bytes]:
    assert client.send("t", BODY, keys=["k"]).status is SendStatus.PUT_OK
    found = until(lambda: client.query_key("t", "k").messages, "the index has the key")
    assert found[0].body == BODY
    return [message.body for message in client.consume("t")]


def test_a_client_that_trusts_the_authority_sends_reads_and_queries(broker, pki):
    with connect(log_address(broker), credentials=pki.token(), retry_timeout_s=60) as client:
        assert BODY in sent_and_read(client)


def test_processes_of_the_machine_need_no_certificate(broker):
    with connect(broker.root) as client:
        assert client.log_state().writable


@pytest.mark.parametrize(
    ("credentials", "sentence"),
    [
        (lambda pki, foreign: Credentials(), "STRATAMQ_TLS_CA"),
        (lambda pki, foreign: foreign.token(), "not of an authority in STRATAMQ_TLS_CA"),
    ],
    ids=["in clear", "another authority"],
)
def test_what_keeps_a_client_out_is_reported(broker, pki, foreign, credentials, sentence):
    with (
        connect(log_address(broker), credentials=credentials(pki, foreign)) as client,
        pytest.raises(UnavailableError, match=sentence),
    ):
        client.topics()


def test_a_certificate_for_other_hosts_is_refused(tmp_path, pki):
    other = tmp_path / "pki"
    shutil.copytree(pki.directory, other)
    from stratamq.cli.tls import Authority

    Authority(other).issue("broker", "stratamq-broker", ["elsewhere.example"], 2, replace=True)
    with Broker(tmp_path / "store", tmp_path / "logs", Pki(other).settings()) as broker:
        broker.start([COMMITLOG])
        with (
            connect(log_address(broker), credentials=pki.token()) as client,
            pytest.raises(UnavailableError, match="is for other hosts"),
        ):
            client.topics()


def test_the_error_of_a_tls_client_names_a_broker_without_tls(tmp_path, pki):
    with Broker(tmp_path / "store", tmp_path / "logs") as broker:
        broker.start([COMMITLOG])
        with (
            connect(log_address(broker), credentials=pki.token()) as client,
            pytest.raises(UnavailableError, match="does without TLS"),
        ):
            client.topics()


def test_clients_without_a_certificate_are_refused_where_one_is_required(tmp_path, pki):
    settings = pki.settings("tls.require_client_certificates=true")
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start(ROOMS)
        with connect(
            log_address(broker), credentials=pki.user("alice"), retry_timeout_s=60
        ) as client:
            assert sent_and_read(client) == [BODY]
        with (
            connect(log_address(broker), credentials=pki.token()) as client,
            pytest.raises(UnavailableError),
        ):
            client.topics()


def test_replaced_certificates_are_used_without_a_restart(tmp_path):
    first = made(tmp_path / "first")
    second = made(tmp_path / "second")
    used = Pki(tmp_path / "used")
    shutil.copytree(first.directory, used.directory)
    with Broker(tmp_path / "store", tmp_path / "logs", used.settings()) as broker:
        broker.start([COMMITLOG])
        pid = broker.pid(COMMITLOG)
        address = log_address(broker)
        with connect(address, credentials=first.token()) as client:
            client.topics()
            # A pair that does not fit together is not used.
            shutil.copy(second.directory / "broker.key", used.directory / "broker.key")
            with connect(address, credentials=first.token()) as another:
                another.topics()
            for name in ("broker.pem", "broker.key", "ca.pem"):
                shutil.copy(second.directory / name, used.directory / name)
            # The first client after the change: a scraper comes every few seconds.
            endpoint = discovery.read(broker.root, COMMITLOG)
            trusting = ssl.create_default_context(cafile=str(second.directory / "ca.pem"))
            url = f"https://{endpoint.metrics}/metrics"
            with urllib.request.urlopen(url, context=trusting, timeout=60) as answer:
                assert answer.status == 200
            with connect(address, credentials=second.token(), retry_timeout_s=60) as another:
                another.topics()
            client.topics()  # what is open continues
        with connect(address, credentials=first.token()) as client, pytest.raises(StrataError):
            client.topics()
        assert broker.pid(COMMITLOG) == pid
        assert "the previous ones stay in use" in broker.output(COMMITLOG)


def handshake(server: ssl.SSLContext, pki: Pki, name: str) -> str:
    """A server's error for a client with this certificate; "" when it accepts it."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.load_cert_chain(pki.directory / f"{name}.pem", pki.directory / f"{name}.key")
    ours, theirs = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    ends = [client.wrap_bio(*ours), server.wrap_bio(*theirs, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                return error.reason or str(error)
            theirs[0].write(ours[1].read())
            ours[0].write(theirs[1].read())
    return ""


def test_an_authority_that_was_replaced_is_trusted_no_more(tmp_path):
    first, second = made(tmp_path / "first", "alice"), made(tmp_path / "second", "alice")
    used = Pki(tmp_path / "used")
    shutil.copytree(first.directory, used.directory)
    files = TlsFiles(*(used.directory / name for name in ("ca.pem", "broker.pem", "broker.key")))
    tls = ServerTls(files)
    contexts = tls.contexts(require_client_certificates=True)
    assert handshake(contexts(), first, "alice") == ""
    assert handshake(contexts(), second, "alice") == "CERTIFICATE_VERIFY_FAILED"
    for name in ("broker.key", "broker.pem", "ca.pem"):
        shutil.copy(second.directory / name, used.directory / name)
    assert handshake(contexts(), first, "alice") == "CERTIFICATE_VERIFY_FAILED"
    assert handshake(contexts(), second, "alice") == ""


def test_files_that_could_not_be_read_are_used_once_they_may_be(tmp_path, monkeypatch):
    """Giving them to the service changes neither their time of writing nor their size."""
    first, second = made(tmp_path / "first", "alice"), made(tmp_path / "second", "alice")
    files = TlsFiles(*(first.directory / name for name in ("ca.pem", "broker.pem", "broker.key")))
    contexts = ServerTls(files).contexts(require_client_certificates=True)
    for name in ("broker.key", "broker.pem", "ca.pem"):
        os.replace(second.directory / name, first.directory / name)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", _refused)
        assert handshake(contexts(), second, "alice") == "CERTIFICATE_VERIFY_FAILED"
    (first.directory / "broker.key").chmod(0o640)
    assert handshake(contexts(), second, "alice") == ""


def test_files_that_are_gone_are_one_line_of_the_log_and_the_old_ones_are_used(tmp_path, caplog):
    first = made(tmp_path / "first", "alice")
    files = TlsFiles(*(first.directory / name for name in ("ca.pem", "broker.pem", "broker.key")))
    contexts = ServerTls(files).contexts(require_client_certificates=True)
    (first.directory / "broker.pem").unlink()
    for _ in range(5):
        assert handshake(contexts(), first, "alice") == ""
    assert caplog.text.count("the previous ones stay in use") == 1


def _refused(*_: object) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_metrics_are_served_over_tls_alone(broker, pki):
    endpoint = discovery.read(broker.root, COMMITLOG)
    trusting = ssl.create_default_context(cafile=str(pki.directory / "ca.pem"))
    with urllib.request.urlopen(f"https://{endpoint.metrics}/metrics", context=trusting) as answer:
        assert b"service_ready 1.0" in answer.read()
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"http://{endpoint.metrics}/metrics", timeout=10)


def test_files_that_do_not_fit_together_end_the_start_with_what_is_wrong(tmp_path, pki, foreign):
    settings = [*pki.settings()[:2], f"tls.key={foreign.directory}/broker.key"]
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.spawn(COMMITLOG)
        assert broker.wait_end(COMMITLOG) == 2
        assert "configuration: TLS files" in broker.output(COMMITLOG)


def test_no_body_and_no_token_is_seen_on_the_way(broker, pki):
    with Recorder(log_address(broker)) as log, Recorder(addresses(broker)[DISPATCHER]) as queues:
        target = f"commitlog={log.address},dispatcher={queues.address}"
        with connect(target, credentials=pki.token(TOKEN), retry_timeout_s=60) as client:
            client.send("seen", BODY)
            until(
                lambda: [one.body for one in client.consume("seen")] == [BODY],
                "the message is read",
            )
        assert len(log.data()) > 1000 and len(queues.data()) > 1000
        for recorder in (log, queues):
            assert BODY not in recorder.data() and TOKEN.encode() not in recorder.data()


def test_without_tls_the_same_recorder_sees_the_body_and_the_token(tmp_path):
    """Or the test above could not fail."""
    with Broker(tmp_path / "store", tmp_path / "logs") as broker:
        broker.start([COMMITLOG, DISPATCHER])
        with Recorder(log_address(broker)) as log:
            target = f"commitlog={log.address},dispatcher={addresses(broker)[DISPATCHER]}"
            with connect(
                target, credentials=Credentials(token=TOKEN), retry_timeout_s=60
            ) as client:
                client.send("seen", BODY)
            assert BODY in log.data() and TOKEN.encode() in log.data()


def test_a_token_is_not_sent_to_another_machine_in_clear():
    with (
        connect("192.0.2.1:10911", credentials=Credentials(token=TOKEN)) as client,
        pytest.raises(InvalidRequestError, match="is not sent to"),
    ):
        client.topics()


def test_a_certificate_without_its_key_is_refused():
    with pytest.raises(StrataError, match="needs its key"):
        TlsFiles(ca=Path("ca.pem"), certificate=Path("a.pem"))


# --- replication ---


def test_a_slave_follows_over_tls_and_nothing_is_seen_on_the_way(tmp_path, pki):
    with Pair(tmp_path, role="SYNC_MASTER", both=pki.settings()) as pair:
        pair.start_master()
        with Recorder(pair.replication_address()) as recorder:
            pair.wire.lead_to(recorder.address)
            pair.start_slave()
            with connect(pair.master.root) as client:
                until(
                    lambda: client.send("t", BODY).status is SendStatus.PUT_OK,
                    "the slave acknowledges",
                )
            with connect(pair.slave.root) as client:
                log = client.log_state()
                assert log.appended_offset > 0
            assert len(recorder.data()) > 1000
            assert BODY not in recorder.data()


@pytest.mark.parametrize("kind", ["in clear", "foreign", "no member"])
def test_a_slave_that_is_no_member_is_refused(tmp_path, pki, foreign, kind):
    slaves = {
        "in clear": ["tls.ca=", "tls.certificate=", "tls.key="],
        "foreign": foreign.settings(),
        "no member": [
            f"tls.certificate={pki.directory}/alice.pem", f"tls.key={pki.directory}/alice.key"
        ],
    }  # fmt: skip
    with Pair(tmp_path, both=pki.settings(), slave=slaves[kind]) as pair:
        pair.start()
        pair.master.stub(COMMITLOG)
        with connect(pair.master.root) as client:
            client.send("t", BODY)
        until(lambda: "slave left" in pair.master.output(HA), "the master has refused the slave")
        with connect(pair.slave.root) as client:
            assert client.log_state().appended_offset == 0
        with connect(pair.master.root) as client:
            assert client.log_state().writable


def test_hosts_of_certificates_are_names_and_addresses(tmp_path):
    from cryptography import x509

    made(tmp_path)
    found = x509.load_pem_x509_certificate((tmp_path / "broker.pem").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == HOSTS[1:]
    assert names.get_values_for_type(x509.DNSName) == HOSTS[:1]
    assert (tmp_path / "broker.key").stat().st_mode & 0o777 == 0o600


def test_sockets_are_their_users_alone(broker):
    path = Path(discovery.read(broker.root, COMMITLOG).local.removeprefix("unix:"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
