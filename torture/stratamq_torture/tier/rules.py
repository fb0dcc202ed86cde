"""Rules of the tier that a trial can go without, to see what they are for."""

from dataclasses import replace
from typing import Any, TypeVar, cast

from stratamq.formats.tier_manifest import MANIFEST_NAME, decode_manifest, encode_manifest
from stratamq.formats.tier_names import INDEX_TOPIC
from stratamq.formats.tier_progress import decode_progress, encode_progress
from stratamq.tier.driver.calls import AbsentError, Call, Delete, Load, Swap, WriteAt
from stratamq.tier.driver.simulated import SimulatedStorage

T = TypeVar("T")

RULES = {
    "swap": "a manifest is replaced only by who has seen it",
    "claim": "each writer has an epoch above those before it",
    "reach": "a new master knows how far the one before may have uploaded",
    "places": "the tier knows where in the log its messages were",
    "lost": "what a tier that was put back misses is no gap that readers pass over",
    "hold": "the log deletes nothing that the tier does not have",
}


class LaxStorage:
    """`Storage` of a process in which some rules do not hold."""

    def __init__(self, storage: SimulatedStorage, without: frozenset[str]) -> None:
        self._storage = storage
        self._without = without

    @property
    def positions(self) -> bool:
        return self._storage.positions

    def perform(self, call: Call[T]) -> T:
        path = getattr(call, "path", "")
        if "swap" in self._without and path.endswith(MANIFEST_NAME) and isinstance(call, Swap):
            return cast(T, self._storage.perform(replace(call, version=self._version(path))))
        if "swap" in self._without and isinstance(call, WriteAt | Delete):
            return cast(T, self._storage.perform(replace(call, only_if=None)))
        if "claim" in self._without and path.endswith("/stratamq-writer.json"):
            if isinstance(call, Load):
                raise AbsentError("a rule is switched off")
            if isinstance(call, Swap):
                return cast(T, self._storage.perform(replace(call, version=self._version(path))))
        if "lost" in self._without and path.endswith(MANIFEST_NAME) and INDEX_TOPIC not in path:
            call = _without_lost(call)
        result = self._storage.perform(call)
        of_queue = path.endswith(MANIFEST_NAME) and INDEX_TOPIC not in path
        if "places" in self._without and of_queue:
            return cast(T, _without_places(call, result))
        if "reach" in self._without and path.endswith("/stratamq-progress.json"):
            return cast(T, _without_reach(call, result))
        return result

    def close(self) -> None:
        self._storage.close()

    def _version(self, path: str) -> Any:
        try:
            return self._storage.backend.memory.perform(Load(path))[1]
        except AbsentError:
            return None


def _without_lost(call: Call[Any]) -> Call[Any]:
    if not isinstance(call, Swap):
        return call
    manifest = decode_manifest(bytes(call.data))
    holes = tuple(replace(hole, lost=False) for hole in manifest.holes)
    return replace(call, data=encode_manifest(replace(manifest, holes=holes)))


def _without_places(call: Call[Any], result: Any) -> Any:
    if not isinstance(call, Load):
        return result
    raw, version = result
    manifest = decode_manifest(raw)
    return encode_manifest(replace(manifest, other_log=manifest.end_offset)), version


def _without_reach(call: Call[Any], result: Any) -> Any:
    if not isinstance(call, Load):
        return result
    raw, version = result
    progress = decode_progress(raw)
    return encode_progress(replace(progress, reach=progress.position)), version
