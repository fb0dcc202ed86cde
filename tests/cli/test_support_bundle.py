"""`stratamq support-bundle`: what helps, of a broker that runs or does not, and no secrets."""

import json
import tarfile

import pytest

from stratamq.cli.support_bundle import BundleFile, written
from stratamq.client import connect
from tests.cli.processes import stratamq as command

BODY = "a body that no other user may read"


def contents(path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            entry.name.partition("/")[2]: archive.extractfile(entry).read().decode()
            for entry in archive
        }


def test_it_has_states_metrics_and_files_of_a_running_broker_and_no_bodies(
    broker, stratamq, tmp_path
):
    with connect(broker.root) as client:
        client.send("bundled", BODY.encode(), properties={"secret": BODY})
    path = tmp_path / "bundle.tar.gz"
    done = stratamq("support-bundle", "--to", str(path))
    assert done.code == 0, done.err
    assert path.stat().st_mode & 0o077 == 0
    found = contents(path)
    status = [json.loads(line) for line in found["status.json"].splitlines()]
    states = {row["service"]: row["state"] for row in status if row["kind"] == "service"}
    assert states["commitlog"] == states["dispatcher"] == "ready"
    assert "# HELP" in found["metrics/commitlog.txt"]
    assert "commitlog/00000000000000000000" in found["store.tsv"]
    assert json.loads(found["versions.json"])["packages"]["grpcio"]
    assert "Max open files" in found["machine.txt"]
    assert "generations" in found["state/generations.json"]
    assert not any(BODY in text for text in found.values())


def test_what_is_listed_is_what_is_written_and_can_be_read_first(stratamq, tmp_path):
    listed = [line.split()[0] for line in stratamq("support-bundle", "--list").out.splitlines()]
    path = tmp_path / "bundle.tar.gz"
    stratamq("support-bundle", "--to", str(path))
    found = contents(path)
    assert set(listed) <= found.keys(), "services write further state meanwhile"
    shown = stratamq("support-bundle", "--show", "state/generations.json")
    assert shown.out == found["state/generations.json"]
    assert "no such" in stratamq("support-bundle", "--show", "no such").err


def test_an_archive_that_is_there_is_kept(stratamq, tmp_path):
    path = tmp_path / "bundle.tar.gz"
    path.write_text("kept")
    done = stratamq("support-bundle", "--to", str(path))
    assert done.code != 0
    assert "already exists" in done.err
    assert path.read_text() == "kept"
    assert list(tmp_path.iterdir()) == [path]


def test_a_broker_that_does_not_run_gives_what_it_left(tmp_path):
    store = tmp_path / "store"
    (store / "stratamq/log").mkdir(parents=True)
    (store / "stratamq/log/commitlog.log").write_text("why it ended\n")
    (store / "stratamq/janitor.json").write_bytes(b"\xff\x00")
    path = tmp_path / "bundle.tar.gz"
    done = command("support-bundle", "--to", str(path), data=store)
    assert done.returncode == 0, done.stderr
    found = contents(path)
    assert found["logs/commitlog.log"] == "why it ended\n"
    assert '"not running"' in found["status.json"]


def test_it_is_refused_where_there_is_no_store(tmp_path):
    done = command("support-bundle", data=tmp_path / "none")
    assert "there is no store directory" in done.stderr.decode()


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("authorization: Bearer abc.DEF-1 x", "authorization: Bearer [removed] x"),
        (
            "--set tier.endpoint=http://me:pass@host/x",
            "--set tier.endpoint=http://me:[removed]@host/x",
        ),
        ('{"aws_secret_access_key": "abc+/="}', '{"aws_secret_access_key": [removed]}'),
        ('{"password": "a b\\"c", "x": 1}', '{"password": [removed], "x": 1}'),
        ("s3://key:pa@ss,wo:rd@host/bucket", "s3://key:[removed]@host/bucket"),
        ("--set a.secret_access_key=AbC/+=x;z,y -x", "--set a.secret_access_key=[removed] -x"),
        ("AccountKey=abc==;EndpointSuffix=core", "AccountKey=[removed]"),
        ("https://a/x?sv=1&sig=AbC%2F&se=2", "https://a/x?sv=1&sig=[removed]&se=2"),
        ("--password hunter2 --x", "--password [removed] --x"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic [removed]"),
        (
            "reason='this token is nobody\\'s' design=1",
            "reason='this token is nobody\\'s' design=1",
        ),
        ("STRATAMQ_TOKEN=abc", "STRATAMQ_TOKEN=[removed]"),
        ("password='x y'", "password=[removed]"),
        ("stratamq_tier_requests_total 5", "stratamq_tier_requests_total 5"),
        (
            "a -----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY----- b",
            "a [removed] b",
        ),
    ],
)
def test_what_looks_like_a_secret_is_removed(text, rest):
    assert written(BundleFile("x", "x", lambda: text)) == rest


def test_what_cannot_be_had_is_reported_in_its_place():
    def fails() -> str:
        raise OSError("the disk is gone")

    assert written(BundleFile("x", "x", fails)) == "not available: OSError: the disk is gone\n"
