"""A running broker's answers checked against what it promised.

`Checker.check` reads on where it was: messages acknowledged since the last check, in the log, in
their queues and under their keys. `forget` makes it begin again at the first byte.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from stratamq.api.v1 import commitlog_pb2
from stratamq.client import Client, PullStatus
from stratamq.errors import StrataError, UnavailableError
from stratamq.rpc.endpoints import CHANNEL_OPTIONS, Endpoints
from stratamq.rpc.framing import READ_RANGE_RESPONSE
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG
from stratamq.rpc.status import from_rpc_error
from stratamq_torture.processes.ledger import GROUP, Ledger, LogImage, Messages, Queue, Stored
from stratamq_torture.processes.services import until

SETTLE_S = 60.0
SHOWN = 12
"""So many broken promises are reported in full."""


@dataclass(slots=True)
class Findings:
    """What one check found, beyond what earlier checks had found."""

    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    """Unique keys of acknowledged messages that are not where they were promised to be."""
    duplicates: int = 0
    """Copies beyond the first."""
    faults: list[str] = field(default_factory=list)

    @property
    def sentences(self) -> list[str]:
        lines = [f"lost: {line}" for line in self.lost] + self.faults
        more = len(lines) - SHOWN
        return lines[:SHOWN] + ([f"and {more} more"] if more > 0 else [])


class Checker:
    """`check` while the workload rests and all services serve."""

    def __init__(self, root: Path, client: Client, messages: Messages, ledger: Ledger) -> None:
        self.image: LogImage | None = None
        self._root = root
        self._client = client
        self._messages = messages
        self._ledger = ledger
        self._checked: set[str] = set()
        """Acknowledged messages that were found in `image`."""
        self._pulled: dict[Queue, int] = {}
        self._duplicates = 0

    def forget(self) -> None:
        """The next check reads everything again from the first byte."""
        self.image = None
        self._checked.clear()
        self._pulled.clear()
        self._duplicates = 0

    def check(self, chance: random.Random, sampled_keys: int = 20) -> Findings:
        """Everything since the last check. Errors of the broker are findings, too."""
        findings = Findings()
        try:
            end = self._settle(findings)
            image = self._read_log(end)
            findings.faults += image.faults
            image.faults.clear()
            self._hold_ledger(image, findings)
            self._hold_consumers(image, findings)
            self._hold_group(findings)
            self._hold_queues(image, findings)
            self._hold_keys(image, findings, chance, sampled_keys)
        except StrataError as error:
            findings.faults.append(f"the broker answered {type(error).__name__}: {error}")
        findings.faults += self._ledger.faults
        self._ledger.faults.clear()
        return findings

    # --- the log ---

    def _settle(self, findings: Findings) -> int:
        """Wait until flushed, dispatched and indexed are where the log ends; that end."""

        def settled() -> bool:
            try:
                state = self._client.log_state()
                followers = (self._client.admin.dispatch_state(), self._client.admin.index_state())
            except UnavailableError:
                return False
            return state.appended_offset == state.flushed_offset == state.confirmed_offset and all(
                each.serving and each.applied_offset == state.appended_offset for each in followers
            )

        if not until(settled, SETTLE_S):
            findings.faults.append(f"followers did not reach the log's end within {SETTLE_S} s")
        return self._client.log_state().appended_offset

    def _read_log(self, end: int) -> LogImage:
        image = self.image
        if image is None:
            state = self._client.log_state()
            image = self.image = LogImage(self._messages, state.segment_bytes)
        if end < image.end:
            image.faults.append(f"the log ended at {image.end} and ends at {end} now")
        elif end > image.end:
            image.read(read_range(self._root, image.end, end))
        return image

    # --- what was promised ---

    def _hold_ledger(self, image: LogImage, findings: Findings) -> None:
        for key, promise in self._ledger.acknowledged.items():
            if key in self._checked:
                continue
            self._checked.add(key)
            findings.acknowledged += 1
            wanted = (
                promise.topic,
                promise.queue_id,
                promise.queue_offset,
                promise.physical_offset,
            )
            copies = image.by_key.get(key, [])
            if wanted not in [
                (s.topic, s.queue_id, s.queue_offset, s.physical_offset) for s in copies
            ]:
                there = f"it is at {copies[0].physical_offset}" if copies else "it is nowhere"
                findings.lost.append(
                    f"{key}, acknowledged for {promise.topic}/{promise.queue_id} at "
                    f"{promise.queue_offset}, log offset {promise.physical_offset}: {there}"
                )
        findings.faults += [
            f"{key} was refused ({reason}) and is in the log"
            for key, reason in self._ledger.refused.items()
            if key in image.by_key
        ]
        self._count_copies(image, findings)

    def _count_copies(self, image: LogImage, findings: Findings) -> None:
        copies = 0
        for key, stored in image.by_key.items():
            if len(stored) == 1:
                continue
            findings.faults.append(f"{key} is there {len(stored)} times")
            copies += len(stored) - 1
        findings.duplicates = copies - self._duplicates
        self._duplicates = copies

    def _hold_consumers(self, image: LogImage, findings: Findings) -> None:
        # A consumer's last answer may still be on its way: what it brings is looked at next time.
        for queue, seen in list(self._ledger.seen.items()):
            stored = image.queues.get(queue, [])
            for offset, place in list(seen.items()):
                if offset >= len(stored):
                    findings.faults.append(
                        f"consumers of {queue[0]}/{queue[1]} saw queue offset {offset} (log offset "
                        f"{place[0]}), the queue ends at {len(stored)} now"
                    )
                elif place != (stored[offset].physical_offset, stored[offset].frame_hash):
                    findings.faults.append(
                        f"consumers of {queue[0]}/{queue[1]} saw another message at {offset}"
                    )

    def _hold_group(self, findings: Findings) -> None:
        """Offsets may go back by what was not saved yet; they never come from nowhere."""
        for queue, offset in self._client.committed_offsets(GROUP).items():
            if not 0 <= offset <= self._ledger.committed.get(queue, -1):
                findings.faults.append(
                    f"group {GROUP} is at {offset} in {queue[0]}/{queue[1]}, where it never was"
                )

    # --- the followers ---

    def _hold_queues(self, image: LogImage, findings: Findings) -> None:
        listed = {(q.topic, q.queue_id): q for q in self._client.queues() if q.max_offset > 0}
        for queue in sorted(set(listed) | set(image.queues)):
            stored = image.queues.get(queue, [])
            ends = listed[queue].max_offset if queue in listed else 0
            if ends != len(stored):
                findings.faults.append(
                    f"{queue[0]}/{queue[1]} ends at {ends}, in the log at {len(stored)}"
                )
            if queue in listed and listed[queue].min_offset != 0:
                findings.faults.append(
                    f"{queue[0]}/{queue[1]} begins at {listed[queue].min_offset}"
                )
            self._pull_queue(queue, stored, findings)

    def _pull_queue(self, queue: Queue, stored: list[Stored], findings: Findings) -> None:
        offset = self._pulled.get(queue, 0)
        while offset < len(stored):
            pulled = self._client.pull(*queue, offset, max_messages=1024, max_bytes=4 << 20)
            if pulled.status is not PullStatus.FOUND or not pulled.messages:
                findings.faults.append(
                    f"{queue[0]}/{queue[1]} at {offset} of {len(stored)}: {pulled.status.name}"
                )
                return
            for message in pulled.messages:
                wanted = stored[offset] if offset < len(stored) else None
                if wanted is None or wanted.frame_hash != hash(message.frame):
                    findings.faults.append(
                        f"{queue[0]}/{queue[1]} at {offset} gave {message.unique_key} of log "
                        f"offset {message.physical_offset} instead of "
                        f"{wanted.unique_key if wanted else 'nothing'}"
                    )
                offset += 1
        self._pulled[queue] = offset

    def _hold_keys(
        self, image: LogImage, findings: Findings, chance: random.Random, count: int
    ) -> None:
        if not image.in_order:
            return
        asked = chance.sample(image.in_order, min(count, len(image.in_order)))
        asked += image.in_order[-3:]
        for one in asked:
            wanted = {s.physical_offset for s in image.by_key[one.unique_key]}
            found = self._client.query_unique_key(one.topic, one.unique_key, max_messages=64)
            offsets = {message.physical_offset for message in found.messages}
            if offsets != wanted:
                findings.faults.append(
                    f"unique key {one.unique_key} finds log offsets {sorted(offsets)} instead of "
                    f"{sorted(wanted)}"
                )
        for one in asked[:3]:
            self._hold_key(image, findings, one)

    def _hold_key(self, image: LogImage, findings: Findings, one: Stored) -> None:
        key = one.keys[0]
        wanted = [
            s.physical_offset for s in image.in_order if s.topic == one.topic and key in s.keys
        ]
        found = self._client.query_key(one.topic, key, max_messages=len(wanted) + 10)
        offsets = sorted(message.physical_offset for message in found.messages)
        if offsets != wanted:
            findings.faults.append(
                f"key {key} of {one.topic} finds {len(offsets)} messages instead of {len(wanted)}; "
                f"first difference: {sorted(set(offsets) ^ set(wanted))[:3]}"
            )


def read_range(root: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Pieces of the log, confirmed or not, from its service: (offset, bytes). UnavailableError."""
    request = commitlog_pb2.ReadRangeRequest(start_offset=start, end_offset=end, unconfirmed=True)
    address = Endpoints(root).address(COMMITLOG)
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        try:
            for response in METHODS["ReadRange"].on(channel)(request, timeout=SETTLE_S):
                head, (data,) = READ_RANGE_RESPONSE.decode(response)
                yield head.offset, bytes(data)
        except grpc.RpcError as failure:
            raise from_rpc_error(failure) from failure
