"""Families of fixed-size files whose names are offsets: commit log and consume queues.

`scan_family` lists what is in such a directory and judges nothing: what a finding means is the
recovery's decision. The names themselves are `formats.file_names`.
"""

import enum
from dataclasses import dataclass

from stratamq.files.port import EntryKind, Files
from stratamq.formats.file_names import OFFSET_NAME_DIGITS, parse_offset_name

_MAXIMUM_OFFSET = (1 << 63) - 1


class FindingKind(enum.Enum):
    """What is out of order about one entry of a family's directory."""

    STRAY = "stray"
    """A name that is not an offset. RocketMQ refuses the directory."""
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"
    """A device, a pipe, a socket; or the family's directory itself is no directory."""
    WRONG_SIZE = "wrong_size"
    EMPTY = "empty"
    """A file of no bytes that is not the last."""
    EMPTY_LAST = "empty_last"
    """The last file has no bytes: RocketMQ may leave that behind when it dies."""
    UNALIGNED = "unaligned"
    """An offset that is no multiple of the file size."""
    GAP = "gap"
    """The segment does not begin where the one before it ends."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing out of order. `detail` is a sentence for people."""

    kind: FindingKind
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """One regular file with an offset for a name, whatever its size."""

    name: str
    offset: int
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class FamilyReport:
    """What is in a family's directory, in order of offsets."""

    directory: str
    file_bytes: int
    segments: tuple[SegmentEntry, ...]
    findings: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """Nothing out of order: whole files, contiguous, nothing else beside them."""
        return not self.findings

    @property
    def minimum_offset(self) -> int:
        """The first segment's offset; 0 for an empty family."""
        return self.segments[0].offset if self.segments else 0

    @property
    def end_offset(self) -> int:
        """Behind the last segment's whole space; 0 for an empty family."""
        return self.segments[-1].offset + self.file_bytes if self.segments else 0

    def of_kind(self, kind: FindingKind) -> list[Finding]:
        """The findings of one kind, in the order of names."""
        return [finding for finding in self.findings if finding.kind is kind]


_KINDS = {
    EntryKind.DIRECTORY: FindingKind.DIRECTORY,
    EntryKind.LINK: FindingKind.LINK,
    EntryKind.OTHER: FindingKind.OTHER,
}


def scan_family(files: Files, directory: str, file_bytes: int) -> FamilyReport:
    """List `directory` (missing is an empty family). Raises OSError only if it cannot be listed."""
    segments: list[SegmentEntry] = []
    findings: list[Finding] = []
    top = files.entry(directory)
    if top is not None and top.kind is not EntryKind.DIRECTORY:
        what = Finding(FindingKind.OTHER, "", f"{directory} is a {top.kind.value}, no directory")
        return FamilyReport(directory, file_bytes, (), (what,))
    for entry in files.list(directory):
        offset = parse_offset_name(entry.name)
        if entry.kind is not EntryKind.FILE:
            detail = f"{entry.name} is a {entry.kind.value}, no file"
            findings.append(Finding(_KINDS[entry.kind], entry.name, detail))
        elif offset is None or offset > _MAXIMUM_OFFSET:
            detail = f"{entry.name} is not an offset of {OFFSET_NAME_DIGITS} digits"
            findings.append(Finding(FindingKind.STRAY, entry.name, detail))
        else:
            segments.append(SegmentEntry(entry.name, offset, entry.size, entry.mtime_ns))
    # Names have one width, so that their order is the offsets' order.
    for index, segment in enumerate(segments):
        before = segments[index - 1] if index else None
        last = index == len(segments) - 1
        findings.extend(_judge(segment, before, last=last, file_bytes=file_bytes))
    return FamilyReport(directory, file_bytes, tuple(segments), tuple(findings))


def _judge(
    segment: SegmentEntry, before: SegmentEntry | None, *, last: bool, file_bytes: int
) -> list[Finding]:
    findings = []
    name = segment.name
    if segment.size == 0:
        kind = FindingKind.EMPTY_LAST if last else FindingKind.EMPTY
        findings.append(Finding(kind, name, f"{name} has no bytes"))
    elif segment.size != file_bytes:
        detail = f"{name} has {segment.size} bytes, not {file_bytes}"
        findings.append(Finding(FindingKind.WRONG_SIZE, name, detail))
    if segment.offset % file_bytes:
        detail = f"{name} is no multiple of {file_bytes}"
        findings.append(Finding(FindingKind.UNALIGNED, name, detail))
    if before is not None and segment.offset != before.offset + file_bytes:
        detail = f"{name} does not begin at {before.offset + file_bytes}, where {before.name} ends"
        findings.append(Finding(FindingKind.GAP, name, detail))
    return findings
