"""Runs in a pod: sends numbered messages one after the other, and prints what was acknowledged.

ADDRESS TOPIC SECONDS FIRST      lines: NUMBER MILLISECONDS STATUS, from FIRST on

Ends after SECONDS, or when its standard input does.
"""

import select
import sys
import time

from stratamq.client import Message, connect

address, topic, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
with connect(address, retry_timeout_s=120) as client, client.producer() as producer:
    end = time.monotonic() + seconds
    number = int(sys.argv[4])
    while time.monotonic() < end and not select.select([sys.stdin], [], [], 0)[0]:
        began = time.monotonic()
        delivery = producer.send_message(Message(topic, b"%d" % number, queue_id=number % 2))
        result = delivery.result(120)
        print(number, round((time.monotonic() - began) * 1000), result.status.name, flush=True)
        number += 1
