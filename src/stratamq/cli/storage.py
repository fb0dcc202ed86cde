"""`stratamq storage`: what fills the disk, and what becomes of it."""

from collections.abc import Iterator
from typing import Annotated

import typer

from stratamq.cli.dump_output import Output, Printer, show_time
from stratamq.cli.dump_rows import Row, fields_of
from stratamq.cli.listings import show
from stratamq.cli.options import HERE, OPERATORS, BrokerTarget, OutputOption, WatchOption, shown
from stratamq.client.storage_map import MappedSegment, StorageMap, TopicBytes
from stratamq.option_groups import option_groups

TOPIC_COLUMNS = ("topic", "bytes", "share", "messages", "queues")
SEGMENT_COLUMNS = (
    *("segment", "usedBytes", "newestTimestamp", "deletionTimestamp", "fate"),
    *("verified", "tiered", "damaged", "reason"),
)
INDEX_COLUMNS = ("indexFile", "from", "upTo", "beginTimestamp", "endTimestamp", "items")


def register(app: typer.Typer) -> None:
    app.command("storage", rich_help_panel=OPERATORS)(storage)


@option_groups
def storage(
    topics: Annotated[
        int, typer.Option("--topics", min=1, max=500, help="Show so many of the largest topics.")
    ] = 20,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
) -> None:
    """Show what fills the disk and what becomes of it: the topics with the most bytes; the log's
    segments with their age, when they are deleted and what keeps them, whether their checksums were
    verified and whether the tier has them; index files; the damage that was found.

    Bytes of topics are an estimate from counts of messages and the sizes of the newest ones; no
    file is read. Exit code 1: damage was found.
    """

    def once() -> int:
        with place.client() as client:
            found = client.admin.storage_map(topics)
        _show(found, output)
        return 1 if found.log.scrub.damage else 0

    shown(once, watch)


def _show(found: StorageMap, output: Output) -> None:
    show(output, TOPIC_COLUMNS, list(_topics(found)))
    show(output, SEGMENT_COLUMNS, list(map(_segment, found.mapped())))
    show(output, INDEX_COLUMNS, list(_index_files(found)))
    printer = Printer(output, ())
    for row, sentence in notes(found):
        printer.note(row, sentence, row["kind"] in ("damage", "problem"))


def _topics(found: StorageMap) -> Iterator[Row]:
    if found.topics is None:
        return
    total = found.topics.size_bytes or 1
    for one in found.topics.largest:
        yield _topic(one, one.topic, total)
    if found.topics.others.queues:
        rest = found.topics.topics - len(found.topics.largest)
        yield _topic(found.topics.others, f"({rest} others)", total) | {"kind": "otherTopics"}


def _topic(one: TopicBytes, name: str, total: int) -> Row:
    return {
        "kind": "topic",
        "topic": name,
        "bytes": one.size_bytes,
        "share": f"{one.size_bytes / total:.1%}",
        "messages": one.messages,
        "queues": one.queues,
    }


def _segment(one: MappedSegment) -> Row:
    segment = one.segment
    return {
        "kind": "segment",
        **fields_of(one, segment=segment.start_offset, endOffset=segment.end_offset),
        "newestTimestamp": segment.newest_ms,
        "deletionTimestamp": segment.deletion_ms,
    }


def _index_files(found: StorageMap) -> Iterator[Row]:
    for one in found.index_files or ():
        yield {
            "kind": "index",
            "indexFile": one.name,
            "from": one.start_offset,
            "upTo": one.end_offset,
            "beginTimestamp": one.begin_ms,
            "endTimestamp": one.end_ms,
            "items": one.items,
        }


def notes(found: StorageMap) -> Iterator[tuple[Row, str]]:
    """The rest of the map: a row for programs, and a sentence for people."""
    log, segments = found.log, found.segments
    row: Row = {
        "kind": "log",
        "minimumOffset": log.minimum_offset,
        "appendedOffset": log.appended_offset,
        "diskTotalBytes": segments.disk_total_bytes,
        "diskUsedBytes": segments.disk_used_bytes,
    }
    disk = ""
    if segments.disk_total_bytes:
        ratio = segments.disk_used_bytes / segments.disk_total_bytes
        disk = f"; the disk is {ratio:.1%} full of {segments.disk_total_bytes} bytes"
    yield row, f"the log has {found.size_bytes} bytes{disk}"
    if found.topics is not None:
        shares = found.topics
        row = {
            "kind": "queues",
            "files": shares.queue_files,
            "units": shares.queue_units,
            "sampledMessages": shares.sampled_messages,
            "estimatedBytes": shares.size_bytes,
        }
        yield (
            row,
            f"bytes of topics are estimated from {shares.sampled_messages} messages and come to "
            f"{shares.size_bytes}; {shares.queue_files} queue files have "
            f"{shares.queue_units} units",
        )
    if found.tier is not None:
        row = {"kind": "tier", "committedOffset": found.tier.committed_offset}
        yield row, f"the tier has everything below {found.tier.committed_offset}"
    if segments.retention is not None:
        policy, disabled = segments.retention.policy, segments.retention.disabled
        sentence = f"retention is disabled, nothing is deleted: {disabled}" if disabled else policy
        yield {"kind": "retention", "policy": policy, "disabled": disabled}, sentence
    yield _scrub(found)
    for damage in log.scrub.damage:
        yield (
            {"kind": "damage", "start": damage.start, "end": damage.end, "reason": damage.reason},
            f"damaged: {damage.start} to {damage.end} ({damage.reason})",
        )
    for text in found.problems:
        yield {"kind": "problem", "text": text}, text


def _scrub(found: StorageMap) -> tuple[Row, str]:
    scrub = found.log.scrub
    row: Row = {
        "kind": "scrub",
        "position": scrub.position_offset,
        "passing": scrub.passing,
        "beganMs": scrub.pass_began_ms,
        "endedMs": scrub.pass_ended_ms,
        "passes": scrub.passes,
    }
    if scrub.passing:
        began = show_time(scrub.pass_began_ms)
        return row, f"checksums are being verified, up to {scrub.position_offset} since {began}"
    if not scrub.pass_ended_ms:
        return row, "checksums of full segments have not been verified since the log was opened"
    return row, f"checksums below {scrub.position_offset} verified {show_time(scrub.pass_ended_ms)}"
