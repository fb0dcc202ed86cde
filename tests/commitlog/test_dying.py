"""A part of the log that dies takes its process with it: nothing continues half."""

import subprocess
import sys

import pytest

from stratamq.client import connect
from stratamq.formats.message_status import SendStatus
from tests.support.brokers import COMMITLOG, Broker

DIES = """
import sys
from stratamq_commitlog.__main__ import main
from stratamq_commitlog.{module} import {owner}
from stratamq.service.server import run_service

there = {owner}.{method}

def dies(self, *arguments):
    if self.{messages}:
        raise RuntimeError("a bug")
    return there(self, *arguments)

{owner}.{method} = dies
run_service(main)
"""


@pytest.mark.parametrize(
    ("module", "owner", "method", "messages"),
    [
        ("engine", "CommitLog", "tick", "appender.counters.messages"),
        ("write.group_commit", "GroupCommit", "_finished", "flushes"),
        ("upkeep.snapshots", "Snapshots", "_has_stored", "_appender.counters.messages"),
    ],
)
def test_a_bug_in_what_runs_by_itself_ends_the_process_with_the_reason(
    tmp_path, module, owner, method, messages
):
    """A tick, a flush's end, a worker's answer: under ASYNC_FLUSH nothing would be flushed any
    more, and everything acknowledged all the same."""
    code = DIES.format(module=module, owner=owner, method=method, messages=messages)
    settings = ["flush_disk_type=ASYNC_FLUSH", "followers=", "follower_stop_timeout_ms=100"]
    root = tmp_path / "store"
    root.mkdir()
    service = subprocess.Popen(
        [sys.executable, "-c", code, "--data", str(root)]
        + [f"--set=commitlog.{setting}" for setting in settings],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with connect(root, retry_timeout_s=60) as client:
            client.topics()  # it serves
            assert client.send("t", b"kept", queue_id=0).status is SendStatus.PUT_OK
        _, errors = service.communicate(timeout=60)
    finally:
        service.kill()
        service.wait()
    assert service.returncode == 1
    assert "RuntimeError('a bug')" in errors
    with Broker(root, tmp_path / "logs", ["commitlog.followers="]) as broker:
        broker.start([COMMITLOG])
        with connect(root, retry_timeout_s=60) as client:
            assert client.log_state().appended_offset > 0
        broker.stop()
