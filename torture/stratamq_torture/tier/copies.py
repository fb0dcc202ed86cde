"""Copies of a storage, and the storage as one of them again: whole, or in one object alone."""

import random
from collections.abc import Mapping

from stratamq.formats.tier_manifest import MANIFEST_NAME
from stratamq.formats.tier_names import INDEX_TOPIC
from stratamq.formats.tier_progress import PROGRESS_NAME, WRITER_NAME, queues_name
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.verify import queues_of, verify_queue
from stratamq_torture.tier.process import BROKER, CLUSTER

ENDS = "356"
"""The seeds in which it happens end in one of these."""
MAX_COPIES = 4
_COPY, _PUT_BACK = 0.15, 0.06


class Copies:
    """Draws by itself, so that what else a seed does is as without it."""

    def __init__(self, seed: int, memory: MemoryStorage) -> None:
        self.put_back: set[str] = set()
        """Kinds of what was put back so far."""
        self._chance = random.Random(f"copies {seed}")
        self._memory = memory
        self._happens = str(seed)[-1] in ENDS
        self._copies: list[dict[str, bytes]] = []

    def step(self) -> str:
        """What has been done: "" for nothing."""
        if not self._happens:
            return ""
        drawn = self._chance.random()
        # One that has nothing is refused by name (`written_tier.require_new`).
        is_tier = any(path.endswith(PROGRESS_NAME) for path in self._memory.objects)
        if drawn < _COPY and is_tier:
            self._copies = [*self._copies, dict(self._memory.objects)][-MAX_COPIES:]
        elif self._copies and drawn < _COPY + _PUT_BACK:
            return self._put_back(self._chance.choice(self._copies))
        return ""

    def _put_back(self, copy: Mapping[str, bytes]) -> str:
        if self._chance.random() < 0.5:
            self._memory.objects = dict(copy)
            self.put_back.add("tier")
            return "a tier put back to an older copy"
        now = self._memory.objects
        names = (MANIFEST_NAME, PROGRESS_NAME, WRITER_NAME, queues_name(0))
        changed = sorted(
            path
            for path in now
            if path.endswith(names) and INDEX_TOPIC not in path and copy.get(path) != now[path]
        )
        self._chance.shuffle(changed)
        for path in changed:
            is_manifest = path.endswith(MANIFEST_NAME)
            if path not in copy and not is_manifest:
                continue
            before = dict(now)
            if path in copy:
                now[path] = copy[path]
            else:
                del now[path]
            if self._is_whole():
                kind = path.rpartition("/")[2]
                self.put_back.add(kind)
                return f"an object put back to an older copy: {kind}"
            self._memory.objects = before
            now = before
        return ""

    def _is_whole(self) -> bool:
        """Whether the manifests name what is there: a part that has left cannot be put back by its
        manifest, and reading it is an error."""
        places = run(queues_of(CLUSTER, BROKER), self._memory)
        return not any(
            "are lost" not in fault
            for place in places
            for fault in run(verify_queue(place), self._memory).faults
        )
