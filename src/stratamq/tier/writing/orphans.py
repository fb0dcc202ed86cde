"""Objects that no manifest names: what crashes and lost races left.

A part's name is never used again; a file's is, by a writer that begins a segment where another had
begun one. So only the writer of a queue deletes its orphans, between two commits, and only those
that were not written for a while.
"""

from collections.abc import Iterable, Iterator

from stratamq.formats.tier_manifest import Manifest
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import List, Listed, Procedure, ask
from stratamq.tier.reading.manifests import parts_by_base

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
    objects: Iterable[Listed], place: QueuePlace, manifest: Manifest | None, before_ms: int
) -> Procedure[list[Listed]]:
    """Those of the objects that the manifest does not name, and that were last written before that
    time. `objects` were listed before the manifest was loaded. None where messages were lost: they
    may be in objects that a later manifest named.

    Of a queue without messages of ours only what a writer of parts names as no other does: its
    files may be those of a tier that RocketMQ wrote. AbsentError, CorruptRecordError: the lists of
    parts of full segments cannot be read.
    """
    if manifest is not None and manifest.lost:
        return []
    named = {place.manifest}
    if manifest is not None:
        parts_of = yield from parts_by_base(manifest.records)
        named.update(part.name for parts in parts_of.values() for part in parts)
        named.update(_named(place, manifest))
    ours = manifest is not None and bool(manifest.records)
    return [
        one
        for one in objects
        if one.path not in named
        and one.modified_ms < before_ms
        and (ours or place.is_of_parts(one.path))
    ]


def taken_out(place: QueuePlace, manifest: Manifest, before_ms: int) -> list[str]:
    """What was taken out before that time and can be deleted. A file whose place was written again
    since, as after a cut, is not among them."""
    live = set(_live(place, manifest))
    return [
        one.path for one in manifest.dropped if one.since_ms < before_ms and one.path not in live
    ]


def _named(place: QueuePlace, manifest: Manifest) -> Iterator[str]:
    yield from _live(place, manifest)
    for dropped in manifest.dropped:
        yield dropped.path


def _live(place: QueuePlace, manifest: Manifest) -> Iterator[str]:
    """But the parts' objects, whose names are not used again."""
    for segment in manifest.records:
        yield segment.details
        if manifest.positions and segment.size:
            yield place.record_segment(segment.base)
    for unit in manifest.units:
        yield place.unit_segment(unit.base)
