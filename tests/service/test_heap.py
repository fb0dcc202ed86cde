"""Services keep the memory of large buffers that they have freed."""

import subprocess
import sys

PROGRAM = """
import resource, sys
from stratamq.service.heap import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def fill_and_free():
    return len(b"".join([bytes(3 << 20), bytes(3 << 20)]))

if sys.argv[1] == "kept":
    keep_freed_memory()
for _ in range(10):
    fill_and_free()
before = faults()
for _ in range(100):
    fill_and_free()
print(faults() - before)
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_buffers_that_are_filled_and_freed_again_cost_few_page_faults():
    assert 10 * faults("kept") < faults("given back")
