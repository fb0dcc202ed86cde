"""The bytes that a RocketMQ master and its slave exchanged, as captured on the wire."""

import json
from dataclasses import dataclass

from tests.support.fixtures import STORES

NAMES = ("4.9.8-ha-async", "4.9.8-ha-sync", "5.5.1-ha-async")


@dataclass(frozen=True, slots=True)
class Capture:
    segment_bytes: int
    reports: list[int]
    frames: list[dict[str, int]]
    """`at` in the stream, log `offset`, `size`."""
    to_master: bytes
    to_slave: bytes


def capture(name: str) -> Capture:
    described = json.loads((STORES / f"{name}.json").read_text())
    return Capture(
        described["commitLogFileSize"],
        described["slaveToMaster"]["reports"],
        described["masterToSlave"]["frames"],
        (STORES / described["slaveToMaster"]["file"]).read_bytes(),
        (STORES / described["masterToSlave"]["file"]).read_bytes(),
    )
