"""Object stores: what every answer of a server becomes, and which servers are refused."""

import json
import os
import sys
import traceback

import pytest
from stratamq_bench.ports import free_port

from stratamq.errors import BusyError, ConfigurationError, StrataError
from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Create,
    Delete,
    Folders,
    List,
    Load,
    Read,
    ShortObjectError,
    Size,
    StorageRefusedError,
    StorageUnavailableError,
    Swap,
    SwapLostError,
    Version,
    ask,
)
from stratamq.tier.driver.objects import VIEWED_BYTES, ObjectSettings, open_objects
from stratamq.tier.driver.probing import PROBES, probe
from stratamq.tier.driver.storage import run
from tests.support import s3_servers
from tests.support.s3_servers import ACCESS_KEY, SECRET_KEY, S3Server

PATH = "cluster/%RETRY%billing/0/manifest"
HTTP_ENDPOINT = "http://127.0.0.1:9"
GOOGLE_ACCOUNT = json.dumps(
    {
        "private_key": "",
        "private_key_id": "",
        "client_email": "",
        "gcs_base_url": HTTP_ENDPOINT,
        "disable_oauth": True,
    }
)
TAG = Version('"0123456789abcdef0123456789abcdef"')

CALLS = {
    "read": Read(PATH, 0, 10),
    "load": Load(PATH),
    "size": Size(PATH),
    "create": Create(PATH, b"x"),
    "swap": Swap(PATH, b"x", TAG),
    "delete": Delete(PATH),
    "list": List("cluster"),
    "folders": Folders("cluster"),
}


# --- opening ---


def test_without_obstore_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(ConfigurationError, match=r'pip install "stratamq\[tier\]"'):
        open_objects(ObjectSettings("s3://bucket"))


def test_importing_the_driver_needs_no_obstore():
    code = "import sys; sys.modules['obstore'] = None; import stratamq.tier.driver.objects"
    assert os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-c", code) == 0


@pytest.mark.parametrize("url", ["", "bucket", "s3:", "s3://", "http://host/b", "file:///tmp/x"])
def test_what_is_no_url_of_an_object_store_is_refused(url):
    with pytest.raises(ConfigurationError, match="s3://"):
        open_objects(ObjectSettings(url))


def test_credentials_in_the_url_are_refused_without_repeating_them():
    with pytest.raises(ConfigurationError) as raised:
        open_objects(ObjectSettings("s3://key:geheim@bucket/prefix"))
    assert "geheim" not in str(raised.value)


def test_an_option_that_the_store_does_not_have_is_named():
    with pytest.raises(ConfigurationError, match="no_such_option"):
        open_objects(ObjectSettings("s3://bucket", {"no_such_option": "1"}))


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("gs://bucket/prefix", {"skip_signature": "true"}),
        ("az://container/prefix", {"account_name": "account", "skip_signature": "true"}),
    ],
)
def test_google_and_azure_are_opened_by_their_urls(url, options):
    open_objects(ObjectSettings(url, options)).close()


def test_settings_do_not_show_their_options():
    assert SECRET_KEY not in repr(ObjectSettings("s3://b", {"secret_access_key": SECRET_KEY}))


# --- every answer ---


def answer(status, code="", headers=(), body=b""):
    text = f"<Error><Code>{code}</Code><Message>sig=geheim</Message></Error>".encode()

    def application(environment, start_response):
        environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        start_response(f"{status} reason", [("Content-Type", "application/xml"), *headers])
        return [body or (b"" if environment["REQUEST_METHOD"] == "HEAD" else text)]

    return application


def error_of(application, call, timeout_ms=5_000):
    with s3_servers.serving(application) as endpoint:
        options = {
            "endpoint": endpoint,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
        }
        settings = ObjectSettings("s3://bucket", options, timeout_ms=timeout_ms, allow_http=True)
        with pytest.raises(StrataError) as raised:
            open_objects(settings).perform(call)
    shown = "".join(traceback.format_exception(raised.value))
    for secret in (SECRET_KEY, ACCESS_KEY, "geheim", endpoint):
        assert secret not in shown
    return raised.value


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_server_that_is_not_well_leaves_the_outcome_open(status, call):
    assert type(error_of(answer(status, "SlowDown"), call)) is StorageUnavailableError


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (400, "Bad")])
def test_what_asking_again_does_not_mend_is_refused(status, code, call):
    assert type(error_of(answer(status, code), call)) is StorageRefusedError


@pytest.mark.parametrize("name", ["read", "load", "create", "swap", "list", "folders"])
def test_a_missing_bucket_is_refused_and_no_absent_object(name):
    error = error_of(answer(404, "NoSuchBucket"), CALLS[name])
    assert type(error) is StorageRefusedError
    assert "bucket" in str(error)


@pytest.mark.parametrize(
    ("name", "status", "code", "expected"),
    [
        ("read", 404, "NoSuchKey", AbsentError),
        ("load", 404, "NoSuchKey", AbsentError),
        ("swap", 404, "NoSuchKey", SwapLostError),
        ("swap", 412, "PreconditionFailed", SwapLostError),
        ("create", 412, "PreconditionFailed", AlreadyThereError),
        ("swap", 409, "ConditionalRequestConflict", BusyError),
        ("create", 409, "ConditionalRequestConflict", BusyError),
        ("create", 409, "BlobAlreadyExists", AlreadyThereError),
        ("swap", 409, "BlobAlreadyExists", SwapLostError),
        ("create", 501, "NotImplemented", StorageRefusedError),
    ],
)
def test_an_answer_becomes_the_error_of_its_call(name, status, code, expected):
    assert type(error_of(answer(status, code), CALLS[name])) is expected


def test_no_server_leaves_the_outcome_open():
    settings = ObjectSettings(
        "s3://bucket",
        {"endpoint": f"http://127.0.0.1:{free_port()}", "skip_signature": "true"},
        allow_http=True,
    )
    with pytest.raises(StorageUnavailableError, match="no connection"):
        open_objects(settings).perform(Create(PATH, b"x"))


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket", {"endpoint": HTTP_ENDPOINT}),
        ("az://bucket", {"endpoint": HTTP_ENDPOINT, "account_name": "a"}),
        ("gs://bucket", {"service_account_key": GOOGLE_ACCOUNT}),
    ],
)
def test_an_endpoint_without_tls_that_is_not_allowed_names_the_setting(url, options):
    settings = ObjectSettings(url, {"skip_signature": "true", **options})
    with pytest.raises(StorageRefusedError, match=r"http://.*set tier\.allow_http"):
        open_objects(settings).perform(Create(PATH, b"x"))


@pytest.mark.parametrize(
    ("status", "expected"), [(403, StorageRefusedError), (500, StorageUnavailableError)]
)
def test_without_credentials_and_role_the_error_names_what_to_set(monkeypatch, status, expected):
    """The machine's metadata service is asked for a role; here a proxy answers for it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with s3_servers.serving(answer(status)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        settings = ObjectSettings("s3://bucket", {"endpoint": "http://store"}, allow_http=True)
        with pytest.raises(expected, match="AWS_ACCESS_KEY_ID"):
            open_objects(settings).perform(Create(PATH, b"x"))


def test_settings_without_conditional_writes_are_refused(moto):
    settings = moto.settings(f"s3://{moto.new_bucket()}", conditional_put="disabled")
    with pytest.raises(StorageRefusedError, match="conditional writes"):
        open_objects(settings).perform(Create(PATH, b"x"))


def test_an_answer_that_does_not_come_in_time_leaves_the_outcome_open():
    def never(environment, start_response):
        while environment["werkzeug.socket"].recv(1 << 16) != b"":
            pass
        start_response("200 too late", [])
        return []

    error = error_of(never, Load(PATH), timeout_ms=200)
    assert type(error) is StorageUnavailableError
    assert "in time" in str(error)


DATED = [
    ("ETag", '"0123456789abcdef0123456789abcdef"'),
    ("Last-Modified", "Sat, 01 Jan 2022 00:00:00 GMT"),
]


@pytest.mark.parametrize("name", ["read", "load"])
def test_a_body_that_breaks_off_is_no_short_object(name):
    call = CALLS[name]
    ranged = name == "read"
    headers = [*DATED, ("Content-Length", "10")]
    if ranged:
        headers.append(("Content-Range", "bytes 0-9/10"))
    error = error_of(answer(206 if ranged else 200, headers=headers, body=b"123"), call)
    assert type(error) is StorageUnavailableError


def test_a_range_that_the_server_shortens_is_a_short_object():
    headers = [*DATED, ("Content-Length", "3"), ("Content-Range", "bytes 0-2/3")]
    error = error_of(answer(206, headers=headers, body=b"123"), Read(PATH, 0, 10))
    assert type(error) is ShortObjectError
    assert "3 bytes" in str(error)


# --- servers ---


def test_a_call_is_one_request():
    seen = []
    with s3_servers.moto_server(seen=seen) as server:
        storage = open_objects(server.settings(f"s3://{server.new_bucket()}"))
        for number in range(5):
            storage.perform(Create(f"q/{number}", b"content"))
        for call, method in [
            (Create("q/new", b"x"), "PUT"),
            (Swap("q/swapped", b"x", None), "PUT"),
            (Read("q/0", 0, 1), "GET"),
            (Load("q/0"), "GET"),
            (Size("q/0"), "HEAD"),
            (List("q", limit=3), "GET"),
            (Folders(""), "GET"),
            (Delete("q/0"), "DELETE"),
        ]:
            seen.clear()
            storage.perform(call)
            assert seen == [method], call


@pytest.mark.parametrize(("length", "is_copied"), [(VIEWED_BYTES - 1, True), (VIEWED_BYTES, False)])
def test_who_keeps_a_small_range_keeps_no_buffer_of_its_connection(moto, length, is_copied):
    storage = open_objects(moto.settings(f"s3://{moto.new_bucket()}"))
    content = os.urandom(2 * VIEWED_BYTES)
    run(ask(Create(PATH, content)), storage)
    found = run(ask(Read(PATH, 7, length)), storage)
    assert found == content[7 : 7 + length]
    assert isinstance(found, bytes) is is_copied


def test_a_page_may_be_several_answers_of_the_server(moto, monkeypatch):
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "4")
    storage = open_objects(moto.settings(f"s3://{moto.new_bucket()}"))
    paths = [f"q/{number:02}/x" for number in range(15)]
    for path in paths:
        storage.perform(Create(path, b""))
    first = storage.perform(List("q", limit=10))
    assert [listed.path for listed in first] == paths[:10]
    assert [listed.path for listed in storage.perform(List("q", first[-1].path))] == paths[10:]
    assert storage.perform(Folders("q")) == [path.split("/")[1] for path in paths]


def test_the_servers_own_names_are_the_paths(versitygw, tmp_path):
    """The gateway keeps an object as a file of its key, so that the disk shows the key."""
    bucket = versitygw.new_bucket()
    storage = open_objects(versitygw.settings(f"s3://{bucket}/tier"))
    names = ["%RETRY%billing", "%DLQ%a%2Fb", "Größe", "a b+c"]
    for name in names:
        storage.perform(Create(f"c/{name}/0", b"x"))
    assert sorted(os.listdir(versitygw.directory / bucket / "tier" / "c")) == sorted(names)


def test_wrong_credentials_are_refused(versitygw):
    settings = versitygw.settings(f"s3://{versitygw.new_bucket()}", secret_access_key="wrong-one")
    with pytest.raises(StorageRefusedError, match="refused these credentials") as raised:
        open_objects(settings).perform(Create(PATH, b"x"))
    assert "wrong-one" not in "".join(traceback.format_exception(raised.value))


# --- the probe ---


def test_a_storage_that_compares_passes_the_probe_and_keeps_nothing_of_it(storage):
    run(probe("attempt-1"), storage)
    run(probe("attempt-1"), storage)
    assert storage.perform(List(PROBES)) == []


@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
def test_a_server_without_conditional_writes_is_refused(header):
    with s3_servers.moto_server(without=[header]) as server:
        storage = open_objects(server.settings(f"s3://{server.new_bucket()}"))
        with pytest.raises(ConfigurationError, match=f"{header}.*take a store with conditional"):
            run(probe("attempt-1"), storage)
        assert storage.perform(List("")) == []


def test_a_bucket_that_is_not_there_is_found_by_the_probe(moto: S3Server):
    storage = open_objects(moto.settings("s3://no-such-bucket"))
    with pytest.raises(StorageRefusedError, match="bucket"):
        run(probe("attempt-1"), storage)
