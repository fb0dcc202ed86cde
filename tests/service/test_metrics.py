"""What services declare: metrics that answer questions; `Times` is a histogram as any other."""

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from stratamq.service.metrics import QUESTIONS, REGISTRY, SECONDS_BUCKETS, Times


def test_a_metric_without_a_question_cannot_be_declared():
    from stratamq.service import metrics

    with pytest.raises(TypeError, match="asks"):
        metrics.gauge("commitlog_unasked", "Never read.")


def test_times_are_shown_as_the_librarys_histogram_shows_them():
    times = Times("t_seconds", "Time.", "part", ("a", "b"))
    histogram = Histogram(
        "t_seconds", "Time.", ["part"], buckets=SECONDS_BUCKETS, registry=CollectorRegistry()
    )
    for part in ("a", "b"):
        histogram.labels(part)
    for number, seconds in enumerate([0.0, 50e-6, 51e-6, 0.3, 1.0, 9.99, 10.0, 11.0, 1e6]):
        part = "ab"[number % 2]
        times.observe(part, seconds)
        histogram.labels(part).observe(seconds)

    def shown(collector) -> set[str]:
        registry = CollectorRegistry()
        registry.register(collector)
        lines = generate_latest(registry).decode().splitlines()
        return {line for line in lines if "_created" not in line}

    assert shown(times) == shown(histogram)


def test_every_metric_of_the_registry_has_its_question():
    import stratamq_commitlog.metrics  # noqa: F401 - declares them

    own = {
        family.name
        for family in REGISTRY.collect()
        if not family.name.startswith(("process_", "python_"))
    }
    asked = {metric.describe()[0].name for metric in QUESTIONS}
    assert own <= asked
    assert all(question.endswith("?") for question in QUESTIONS.values())
