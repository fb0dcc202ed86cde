"""`stratamq bench failover`, small: it runs to its end, and finds every answered message once."""

import json
import shutil

import pytest

from tests.cli.processes import stratamq


def test_masters_are_killed_and_switched_and_nothing_answered_is_lost():
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (Debian: etcd-server)")
    done = stratamq("bench", "failover", "--rounds", "1", "--ttl", "8", "--output", "json")
    assert done.returncode == 0, done.stderr.decode()
    switched, killed, quiet = json.loads(done.stdout)["cases"]
    assert switched["messages"] > 10
    assert killed["measured"]["worst_s"] >= 1.5
    assert quiet["measured"]["requests_a_minute"] > 0
