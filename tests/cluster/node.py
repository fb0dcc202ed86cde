"""What the one node of a cluster of our own can do to a pod: freeze it, cut off its network.

The tests run in the node's namespaces (scripts/with_cluster.sh).
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def frozen(pod_uid: str) -> Iterator[None]:
    """No process of the pod runs meanwhile; those that are started meanwhile do."""
    processes = _processes(pod_uid)
    assert processes, f"no process of the pod {pod_uid} is here"
    _signal(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(processes, signal.SIGCONT)


@contextmanager
def cut_off(pod_uid: str) -> Iterator[None]:
    """Nothing reaches the pod meanwhile, also no probe, and nothing leaves it."""
    link = _link(_processes(pod_uid)[0])
    _run("ip", "link", "set", link, "down")
    try:
        yield
    finally:
        _run("ip", "link", "set", link, "up")


def _processes(pod_uid: str) -> list[int]:
    found = []
    for group in Path("/proc").glob("[0-9]*/cgroup"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if pod_uid in group.read_text():
                found.append(int(group.parent.name))
    return found


def _signal(processes: list[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # it has ended
            os.kill(process, number)


def _link(process: int) -> str:
    """The node's end of the pod's only link. `ip` prints eth0@if7 in the pod, 7: veth1@if2 here."""
    inside = _run("nsenter", "--target", str(process), "--net", "ip", "-o", "link", "show", "eth0")
    index = inside.split("@if")[1].split(":")[0]
    for line in _run("ip", "-o", "link").splitlines():
        number, name, *_ = line.split(":")
        if number == index:
            return name.split("@")[0].strip()
    raise AssertionError(f"no link {index} here")


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
