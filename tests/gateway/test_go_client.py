"""RocketMQ's own Go client 2.1.2, unchanged, at a gateway: rows of spec/remoting-acceptance.md.
`tests/classic_clients/go` plays them, but for those for which the client has no calls."""

import fcntl
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.gateway.test_java_clients import served

GO = Path(__file__).parent.parent / "classic_clients" / "go"
DEADLINE_S = 900
SENDS = "send-sync send-async send-oneway send-batch fields compressed too-big no-topic"
READS = "push push-orderly broadcast tag-filter sql-filter long-poll pull rebalance quick-start"
REST = "retry-new dlq delay-level timer tx-commit tx-rollback tx-check"

pytestmark = [
    pytest.mark.java,  # with the other official clients, which need their tools and a network
    pytest.mark.timeout(DEADLINE_S),
    pytest.mark.skipif(shutil.which("go") is None, reason="the Go client needs Go"),
]


@cache
def built() -> Path:
    target = GO / "target"
    target.mkdir(exist_ok=True)
    with (target / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = target / "rows"
        subprocess.run(["go", "build", "-o", program, "."], cwd=GO, check=True)
    return program


@pytest.mark.parametrize("rows", [SENDS, READS, REST], ids=["sends", "reads", "rest"])
def test_the_go_client_sees_what_it_sees_of_rocketmq(tmp_path, rows):
    with served(tmp_path) as address:
        done = subprocess.run(
            [built(), address, *rows.split()], capture_output=True, text=True, timeout=DEADLINE_S
        )
    assert done.stdout == "".join(f"{row}\tok\n" for row in rows.split()), done.stderr[-4_000:]
