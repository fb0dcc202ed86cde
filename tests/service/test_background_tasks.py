"""In every service, when one background task dies, the process ends and reports the cause."""

import subprocess
import sys

import pytest

from tests.support.brokers import COMMITLOG, Broker

DEADLINE_S = 120
RUN_WITH_A_FAULT = """
import importlib, inspect, runpy, sys
room, target = sys.argv[1:3]
module, name = target.split(":")
holder, method = name.split(".")

def fails(*arguments, **named):
    raise RuntimeError("the planted fault")

async def fails_later(*arguments, **named):
    fails()

owner = getattr(importlib.import_module(module), holder)
later = inspect.iscoroutinefunction(getattr(owner, method))
setattr(owner, method, fails_later if later else fails)
sys.argv = [room, *sys.argv[3:]]
runpy.run_module(room, run_name="__main__", alter_sys=True)
"""


def run_with_a_fault(room: str, target: str, root) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN_WITH_A_FAULT, room, target, "--data", str(root)]
    if room == "stratamq_ha":
        command += ["--set", "ha.replication_address=127.0.0.1:0"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize(
    ("room", "target"),
    [
        ("stratamq_commitlog", "stratamq_commitlog.engine:CommitLog.tick"),
        ("stratamq_dispatcher", "stratamq_dispatcher.engine:DispatchEngine.tick"),
        ("stratamq_dispatcher", "stratamq_dispatcher.offset_bounds:OffsetBounds.tick"),
        ("stratamq_index", "stratamq_index.engine:IndexEngine.tick"),
        ("stratamq_ha", "stratamq_ha.keeper:RoleKeeper.run"),
        ("stratamq_janitor", "stratamq_janitor.cleaner:Cleaner.run"),
    ],
)
def test_a_service_whose_background_task_dies_ends_with_the_reason(tmp_path, room, target):
    ended = run_with_a_fault(room, target, tmp_path)
    assert ended.returncode == 1
    assert "the planted fault" in ended.stderr + ended.stdout


@pytest.mark.parametrize(
    ("room", "target"),
    [
        ("stratamq_dispatcher", "stratamq.follow.fold:Fold.report"),
        ("stratamq_index", "stratamq.follow.fold:Fold.report"),
    ],
)
def test_a_follower_that_cannot_report_any_more_ends_with_the_reason(tmp_path, room, target):
    with Broker(tmp_path / "store", tmp_path / "logs", []) as broker:
        broker.start([COMMITLOG])
        ended = run_with_a_fault(room, target, broker.root)
    assert ended.returncode == 1
    assert "the planted fault" in ended.stderr + ended.stdout
