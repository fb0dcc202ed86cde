"""Runs in a pod: sends numbered messages, waits until the tier has them, has the log delete what it
may, and prints the numbers that a consumer reads from the queues' beginning.

ADDRESS TOPIC FIRST COUNT SEGMENT_BYTES      lines: a number each, then `log MINIMUM`
"""

import sys
import threading

from stratamq.client import connect
from stratamq.files.clock import SystemClock

DEADLINE_S = 120.0
BODY = bytes(100_000)
address, topic = sys.argv[1:3]
first, count, segment_bytes = (int(word) for word in sys.argv[3:6])


def until(reached, what):
    clock, pause = SystemClock(), threading.Event()
    end_ns = clock.monotonic_ns() + int(DEADLINE_S * 1e9)
    while not reached():
        if clock.monotonic_ns() > end_ns:
            raise SystemExit(f"not within {DEADLINE_S} s: {what}")
        pause.wait(0.1)


with connect(address, retry_timeout_s=120) as client:
    for number in range(first, first + count):
        client.send(topic, b"%d " % number + BODY)
    end = client.log_state().appended_offset
    below = end - end % segment_bytes
    until(lambda: client.admin.tier_state().committed_offset >= end, "all in the bucket")
    until(lambda: client.admin.delete_below(below)[0] >= below, "the segments to go")
    for message in client.consume(topic):
        print(int(message.body.split()[0]))
    print("log", client.log_state().minimum_offset)
