"""What the pages of RocketMQ's dashboard, and its Flink connector, ask a gateway for, by RocketMQ's
tools and client 5.3.3, unchanged: `tests/classic_clients/java/src/tools`. They themselves are in no
Maven repository."""

import pytest
from stratamq_gateway.policies import SUPER

from stratamq.rpc.permission_file import Grant, Permissions, dump
from tests.gateway.test_java_clients import build, run, served

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

PAGES = ("cluster", "topics", "consumers", "producers", "messages", "dead-letters", "trace")
SECRET = "secret-of-root"


def test_the_pages_of_the_dashboard_show_what_is_there(tmp_path):
    build("tools")
    with served(tmp_path) as address:
        assert run("tools", address, *PAGES) == "".join(f"{page}\tok\n" for page in PAGES)


def test_the_source_and_the_sink_of_the_flink_connector_are_served(tmp_path):
    build("tools")
    rows = ("flink-source", "flink-sink")
    with served(tmp_path) as address:
        assert run("tools", address, *rows) == "".join(f"{row}\tok\n" for row in rows)


def test_the_dashboards_page_of_users_changes_who_may_what(tmp_path):
    build("tools")
    permissions = Permissions()
    permissions.set_secret("root", SECRET, "")
    permissions.rules = [Grant("root", one.verb, one.kind, one.name) for one in SUPER]
    file = tmp_path / "permissions.json"
    file.write_bytes(dump(permissions))
    with served(tmp_path, f"access.file={file}") as address:
        signed = f"-Dkey=root -Dsecret={SECRET}"
        assert run("tools", address, "access", options=signed) == "access\tok\n"
