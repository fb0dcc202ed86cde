"""Objects that no manifest names: what crashes and lost races left.

A part's name is never used again; a file's is, by a writer that begins a segment where another had
begun one. So only the writer of a queue deletes its orphans, between two commits, and only those
that were not written for a while.
"""

from collections.abc import Iterable, Iterator

from stratamq.formats.tier_manifest import Manifest, Part
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import List, Listed, Procedure, ask

_PAGE = 1000


def listed(place: QueuePlace) -> Procedure[list[Listed]]:
    """Every object of the queue."""
    found: list[Listed] = []
    after = ""
    while True:
        page = yield from ask(List(place.folder, after, _PAGE))
        found += page
        if len(page) < _PAGE:
            return found
        after = page[-1].path


def orphans(
    objects: Iterable[Listed],
    place: QueuePlace,
    manifest: Manifest | None,
    parts: Iterable[Part],
    before_ms: int,
) -> list[Listed]:
    """Those of the objects that nothing names, and that were last written before that time.

    `parts`: of all segments of the manifest.
    """
    named = {place.manifest, *(part.name for part in parts)}
    if manifest is not None:
        named.update(_named(place, manifest))
    return [one for one in objects if one.path not in named and one.modified_ms < before_ms]


def _named(place: QueuePlace, manifest: Manifest) -> Iterator[str]:
    for segment in manifest.records:
        yield segment.details
        if manifest.positions and segment.size:
            yield place.record_segment(segment.base)
    for unit in manifest.units:
        yield place.unit_segment(unit.base)
    for dropped in manifest.dropped:
        yield dropped.path
