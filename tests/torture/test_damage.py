"""A slice of `stratamq torture damage`: every family of files and every kind of damage once."""

import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from stratamq_commitlog import log_reads
from stratamq_commitlog.recovery.recovery import _Recovery
from stratamq_dispatcher import frame_reads
from stratamq_torture.damage.engines import InProcessBroker, Template, make_template
from stratamq_torture.damage.kinds import FAMILIES, KINDS
from stratamq_torture.damage.trial import (
    MEMORY,
    PAIRS,
    Outcome,
    damage_one,
    run_damage,
)
from stratamq_torture.trial import Options

PARTS = 6
STRIDE = 5
"""Every fifth pair here; `stratamq torture damage` runs them all."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The engines report every damage; here their reports are read."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """In memory where there is such a file system: nothing here asks what is durable."""
    memory = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="stratamq-damage-", dir=memory) as name:
        yield Path(name)


@pytest.fixture
def scratch(directory: Path) -> Path:
    return directory


@pytest.fixture(scope="module")
def templates(directory: Path) -> dict[str, Template]:
    def make(name: str, **how: bool) -> Template:
        (directory / name).mkdir()
        return make_template(directory / name, 1, **how)

    return {
        "stopped": make("stopped", clean=True, property_checksum=True),
        "killed": make("killed", clean=False, property_checksum=True),
        "plain": make("plain", clean=True, property_checksum=False),
    }


@pytest.mark.parametrize("part", range(PARTS))
def test_damage_is_served_around_or_refused(templates, scratch: Path, part: int):
    assert len(PAIRS) == len(FAMILIES) * len(KINDS)
    template = templates["stopped" if part % 2 else "killed"]
    for seed in range(part * STRIDE, len(PAIRS), PARTS * STRIDE):
        outcome = damage_one(template, scratch, seed)
        assert not outcome.broken, (outcome.what, outcome.broken)
        assert outcome.named, outcome


def test_without_record_checksums_bodies_are_right_all_the_same(templates, scratch: Path):
    outcomes = [damage_one(templates["plain"], scratch, seed) for seed in range(0, 60, 6)]
    assert [outcome.broken for outcome in outcomes if outcome.broken] == []


def rounds(template: Template, scratch: Path) -> list[Outcome]:
    """Flipped bits, zeros and garbage in the first segment."""
    return [damage_one(template, scratch, seed) for seed in range(7)]


def test_reads_that_do_not_verify_are_found_out(templates, scratch: Path, monkeypatch):
    monkeypatch.setattr(frame_reads, "first_damaged", lambda *_: None)
    monkeypatch.setattr(log_reads, "damage_in", lambda *_: "")
    broken = [line for o in rounds(templates["stopped"], scratch) for line in o.broken]
    assert any("pull gave wrong bytes" in line for line in broken), broken


def test_a_log_that_forgets_what_it_cut_is_found_out(templates, scratch: Path, monkeypatch):
    kind = [each.__name__ for each in KINDS].index("flip_and_zero_end")
    family = [each.name for each in FAMILIES].index("last segment")
    seed = family * len(KINDS) + kind
    outcome = damage_one(templates["stopped"], scratch, seed)
    assert outcome.cut and outcome.missing and not outcome.broken, outcome
    monkeypatch.setattr(_Recovery, "_keep_aside", lambda *_: "nowhere")
    broken = damage_one(templates["stopped"], scratch, seed).broken
    assert any("is not under stratamq/aside/" in line for line in broken), broken


def test_the_template_is_what_its_engines_report(templates):
    template = templates["stopped"]
    broker = InProcessBroker(template.root, template.sizes)
    log = broker.start_log()
    try:
        assert log.offsets.appended == template.end
        offsets = np.array([message.offset for message in template.messages])
        sizes = np.array([len(message.raw) for message in template.messages])
        assert (offsets[1:] >= offsets[:-1] + sizes[:-1]).all()
        assert all(log.frame_at(m.offset) == m.raw for m in template.messages)
    finally:
        broker.kill()


def test_the_trial_reports_numbers_and_how_to_see_a_failure_again(monkeypatch):
    report = run_damage(Options(20, 100))
    assert (report.failures, report.lost) == ([], 0)
    assert 0 < report.damaged_files <= 20
    assert json.dumps(report.notes)
