"""How long a trial waits for a process: one that gets no processor does not hang."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from stratamq_torture.processes.services import Patience, until, waited_for_processor_s

HANG_S = 60.0
LIMIT_S, WAITED_S = 0.15, 0.6
SPIN = """
import os
os.sched_setaffinity(0, {cpu})
os.nice({nice})
print("ready", flush=True)
while True:
    pass
"""


@pytest.fixture
def start() -> Iterator[Callable[[str], int]]:
    """Starts a program, and returns its process id once it has printed a line."""
    with ExitStack() as stack:

        def start(program: str) -> int:
            command = [sys.executable, "-S", "-c", program]
            pipe = subprocess.PIPE
            process = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe))
            stack.callback(process.kill)
            assert process.stdout is not None and process.stdout.readline()
            return process.pid

        yield start


def test_the_time_for_which_a_process_waits_for_a_processor_is_left_out(start):
    cpu = {min(os.sched_getaffinity(0))}
    starved = start(SPIN.format(cpu=cpu, nice=19))
    for _ in range(2):
        start(SPIN.format(cpu=cpu, nice=0))
    patience, before_s = Patience(starved, LIMIT_S), waited_for_processor_s(starved)
    assert until(lambda: waited_for_processor_s(starved) - before_s > WAITED_S, HANG_S)
    assert patience.left_s > LIMIT_S - WAITED_S / 2


def test_a_process_that_does_nothing_has_its_time_and_no_more(start):
    idle = start("print('ready', flush=True)\ninput()")
    patience = Patience(idle, LIMIT_S)
    assert until(lambda: patience.left_s <= 0, HANG_S)
