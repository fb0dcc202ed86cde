"""A broker that has nothing to do: `stratamq up` as a user types it, and what it uses."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from stratamq.client import SendStatus, connect
from stratamq.errors import StrataError
from stratamq_bench.broker import START_TIMEOUT_S, STOP_TIMEOUT_S, until
from stratamq_bench.load import Mismatch
from stratamq_bench.plan import Plan
from stratamq_bench.report import Case
from stratamq_bench.usage import CpuMeter, children, pss_mb, room_of

TOPIC = "idle"
SETTLE_S = 3.0


def idle(place: Path, plan: Plan) -> Case:
    """`messages_per_s` is 0: nothing is sent while it is measured."""
    root = place / "store"
    began = time.perf_counter()
    command = [sys.executable, "-m", "stratamq.cli", "up", "--data", str(root), "--port", "0"]
    with (place / "up.log").open("wb") as log:
        up = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        _store(root, b"first")
        first_put_s = time.perf_counter() - began
        time.sleep(min(SETTLE_S, plan.seconds))
        pids = {"up": up.pid} | {room_of(pid): pid for pid in children(up.pid)}
        meter, began = CpuMeter(pids), time.perf_counter()
        time.sleep(plan.seconds)
        seconds, used = time.perf_counter() - began, meter.seconds()
        memory = {name: pss_mb(pid) for name, pid in pids.items()}
        _store(root, b"second")
        with connect(root, retry_timeout_s=START_TIMEOUT_S) as client:
            bodies = sorted(message.body for message in client.consume(TOPIC))
        if bodies != [b"first", b"second"]:
            raise Mismatch(f"the broker holds {bodies}")
    finally:
        up.send_signal(signal.SIGINT)
        code = up.wait(STOP_TIMEOUT_S)
    if code:
        raise StrataError(
            f"stratamq up ended with {code}: {(place / 'up.log').read_text()[-2000:]}"
        )
    return Case(
        pss_mb=sum(memory.values()),
        measured={
            "cpu_percent": sum(used.values()) / seconds * 100,
            "first_put_s": first_put_s,
            "processes": len(pids),
            **{f"{name}_cpu_percent": s / seconds * 100 for name, s in used.items()},
            **{f"{name}_pss_mb": mb for name, mb in memory.items()},
        },
        messages=len(bodies),
    )


def _store(root: Path, body: bytes) -> None:
    """One message, as soon as the broker takes it. StrataError, Mismatch."""

    def stored() -> bool:
        with connect(root) as client:
            result = client.send(TOPIC, body)
        if result.status is not SendStatus.PUT_OK:
            raise Mismatch(f"a message was answered {result.status.name}")
        return True

    until(stored, "no message was stored", START_TIMEOUT_S, 0.02)
