"""The figures are those that counting message by message gives, and the page holds them."""

import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from stratamq_pipeline.log_view import FilesView
from stratamq_pipeline.stats.figures import MAX_BUCKETS, Figures, bucket_for
from stratamq_pipeline.stats.job import StatsOptions, run_stats
from stratamq_pipeline.stats.job import figures as figures_of
from stratamq_pipeline.stats.page import page

import stratamq
from stratamq.files.real import RealFiles
from stratamq.table.log_files import open_log
from tests.dispatcher.followed_log import WrittenLog
from tests.pipeline.job_stores import HERE, PART_BYTES
from tests.support.fixtures import unpack


class Page(HTMLParser):
    """Tags that open and close in order, and what they refer to."""

    VOID = ("meta", "br", "link", "img", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: Counter[str] = Counter()
        self.references: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.counts[tag] += 1
        self.references += [
            value for name, value in attributes if name in ("src", "href", "xlink:href") and value
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.spark
def test_figures_are_those_of_counting(spark, tmp_path):
    root = unpack("5.5.1-transactions-delay-batch", tmp_path)
    options = StatsOptions(str(root), most=1000, part_bytes=PART_BYTES)
    figures = figures_of(spark, FilesView(open_log(root)), options)
    rows = stratamq.scan(root).to_arrow().to_pylist()

    messages = Counter(row["topic"] for row in rows)
    assert {row["topic"]: row["messages"] for row in figures.topics} == messages
    for topic in figures.topics:
        own = [row for row in rows if row["topic"] == topic["topic"]]
        assert topic["bytes"] == sum(row["size"] for row in own)
        assert topic["maxSize"] == max(row["size"] for row in own)
        assert topic["queues"] == len({row["queueId"] for row in own})
        assert topic["keys"] == sum(len(row["keys"]) for row in own)
        assert topic["withoutKeys"] == sum(not row["keys"] for row in own)
        assert topic["withoutTags"] == sum(row["tags"] is None for row in own)
        assert topic["first"].timestamp() == min(r["storeTimestamp"] for r in own).timestamp()
    bucket = figures.bucket_ms
    by_time = Counter(
        (row["topic"], int(row["storeTimestamp"].timestamp() * 1000) // bucket * bucket)
        for row in rows
    )
    assert {(row["topic"], row["start"]): row["messages"] for row in figures.times} == by_time
    tags = Counter((row["topic"], row["tags"]) for row in rows if row["tags"] is not None)
    assert {(row["topic"], row["tags"]): row["messages"] for row in figures.tags} == tags
    keys = Counter((row["topic"], key) for row in rows for key in row["keys"])
    repeated = {key: count for key, count in keys.items() if count > 1}
    assert {(row["topic"], row["key"]): row["messages"] for row in figures.keys} == repeated
    producers = Counter(row["bornHost"].rpartition(":")[0] for row in rows)
    assert {row["address"]: row["messages"] for row in figures.producers} == producers
    assert sum(row["messages"] for row in figures.sizes) == len(rows)
    assert all(row["upTo"] & (row["upTo"] - 1) == 0 for row in figures.sizes)


@pytest.mark.spark
def test_gaps_and_silences_are_found_and_the_page_is_whole(spark, tmp_path):
    root = tmp_path / "store"
    root.mkdir()
    log = WrittenLog(RealFiles(root))
    log.put("quiet", 0, tags="<b>")
    log.put("busy", 0)
    log.put("quiet", 0, after_ms=90_000)
    log.put("busy", 0, queue_offset=5, after_ms=10)
    place = tmp_path / "report.html"
    summary = run_stats(StatsOptions(str(root), str(place)), HERE)
    assert summary.facts["messages"] == 4
    assert summary.facts["queue_gaps"] == 1
    text = place.read_text()
    parsed = Page(text)
    assert parsed.counts["svg"] >= 4
    assert parsed.counts["script"] == parsed.counts["link"] == parsed.counts["img"] == 0
    assert all(one.startswith("#") for one in parsed.references)
    assert "<b>" not in text
    figures = figures_of(spark, FilesView(open_log(root)), StatsOptions(str(root)))
    assert [(row["topic"], row["seconds"]) for row in figures.silences] == [
        ("busy", 90.01),
        ("quiet", 90.001),
    ]
    (gap,) = figures.gaps
    assert (gap["topic"], gap["before"], gap["queueOffset"], gap["missing"]) == ("busy", 0, 5, 4)


def test_a_page_of_an_empty_log_shows_that_it_is_empty():
    text = page(Figures("nowhere", 0, 0))
    Page(text)
    assert "0 messages in 0 topics" in text


def test_many_topics_are_named_by_size_and_the_rest_together():
    topics = [
        {"topic": f"topic {n:02d} & <more>", "messages": 100 - n, "bytes": 1} for n in range(30)
    ]
    times = [{"topic": row["topic"], "start": 0, "messages": 1, "bytes": 1} for row in topics]
    text = page(
        Figures(
            "log",
            0,
            1,
            topics=topics,
            times=times,
            sizes=[{"topic": "x", "upTo": 512, "messages": 1}],
            producers=[{"address": "10.0.0.1", "messages": 30}],
        )
    )
    Page(text)
    assert "topic 00 &amp; &lt;more&gt;" in text
    assert "others" in text
    legend = re.findall(r"topic 0[0-9] &amp; &lt;more&gt;</text>", text)
    assert len(legend) == 6 + 6  # of messages, and of bytes


@pytest.mark.parametrize("span_ms", [0, 999, 60_000, 86_400_000, 400 * 86_400_000])
def test_a_page_shows_all_of_any_time(span_ms):
    assert span_ms // bucket_for(span_ms) < MAX_BUCKETS


def test_a_dry_run_reads_nothing(tmp_path):
    root = unpack("4.9.8-small-clean", tmp_path)
    summary = run_stats(StatsOptions(str(root), str(tmp_path / "x.html"), dry_run=True), HERE)
    assert summary.facts["dry_run"]
    assert not (tmp_path / "x.html").exists()
