"""What the documentation takes from the code equals the code."""

import re
import sys
from pathlib import Path

import gen_docs
import pytest

from stratamq.service.config import describe
from stratamq.service.metrics import REGISTRY

ROOT = Path(__file__).resolve().parent.parent


def markdown_files() -> list[Path]:
    places = ("*.md", "docs/**/*.md", "services/*/*.md", "deploy/**/*.md", "protos/*.md")
    return sorted(path for place in places for path in ROOT.glob(place))


def test_every_generated_page_is_what_the_code_gives():
    stale = [
        str(path.relative_to(ROOT))
        for path, text in gen_docs.pages().items()
        if gen_docs.content(path) != text
    ]
    assert stale == [], "run `make docs` and commit the result"


def test_every_setting_is_shown_with_its_unit_default_bound_and_rocketmqs_name():
    page = (ROOT / "docs" / "configuration.md").read_text()
    for section, cls in gen_docs.configs().items():
        shared, _, own = page.partition(f"## `[{section}]`")
        for row in describe(cls):
            cells = f"| `{row.name}` | {gen_docs.default(row)} | {row.unit} | "
            cells += f"{gen_docs.bound(row)} | {gen_docs.code(row.rocketmq)} | "
            assert cells in own or cells in shared, f"{section}.{row.name}"


def test_every_setting_has_a_sentence_and_every_number_its_bounds():
    for section, cls in gen_docs.configs().items():
        for row in describe(cls):
            where = f"{section}.{row.name}"
            assert row.doc.endswith((".", "…")), where
            if row.type.startswith(("int", "float")):
                assert row.minimum is not None, where
                assert row.maximum is not None, where


def test_every_metric_of_the_process_is_documented_under_its_room():
    page = gen_docs.metrics_page()
    for module in gen_docs.metric_modules().values():
        section = module.__name__.partition(".")[0].removeprefix("stratamq_")
        names = re.findall(r"^\| [^|]+ \| `(\w+)`", gen_docs.metrics_table([module]), re.MULTILINE)
        assert all(name.startswith(f"{section}_") for name in names)
    for family in REGISTRY.collect():
        if not family.name.startswith(("process_", "python_")):
            assert f"`{family.name}" in page, family.name


def test_a_page_that_drifted_is_found_and_mended(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    for source in ("protos", "deploy"):
        (tmp_path / source).symlink_to(ROOT / source)
    sentences = tmp_path / gen_docs.SENTENCES
    sentences.parent.mkdir(parents=True)
    sentences.write_bytes((ROOT / gen_docs.SENTENCES).read_bytes())
    configuration = tmp_path / "docs" / "configuration.md"
    text = (ROOT / "docs" / "configuration.md").read_text()
    configuration.write_text(text.replace("`5_000`", "`6_000`"))
    monkeypatch.setattr(gen_docs, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["gen_docs.py", "--check"])
    assert gen_docs.main() == 1
    assert "docs/configuration.md is not what the code gives" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["gen_docs.py"])
    assert gen_docs.main() == 0
    assert configuration.read_text() == text
    monkeypatch.setattr(sys, "argv", ["gen_docs.py", "--check"])
    assert gen_docs.main() == 0


def test_a_page_without_its_markers_is_refused_not_overwritten():
    with pytest.raises(SystemExit, match="has lost its markers"):
        gen_docs.with_settings("# Configuration\n")


LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_every_link_between_documents_leads_somewhere():
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in markdown_files()
        for target in LINK.findall(path.read_text())
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert broken == []


def test_every_make_target_that_a_document_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = [
        f"{path.relative_to(ROOT)}: make {target}"
        for path in markdown_files()
        for target in re.findall(r"`make ([a-z-]+)`", path.read_text())
        if target not in targets
    ]
    assert missing == []


def test_every_source_file_that_architecture_names_is_there_under_that_path():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`([\w./-]+\.(?:py|md|toml|proto))`", text))
    assert len(named) > 20
    paths = [f"/{path.relative_to(ROOT).as_posix()}" for path in sources()]
    found = {name: sum(path.endswith(f"/{name}") for path in paths) for name in named}
    assert {name: count for name, count in found.items() if count != 1} == {}


def sources() -> list[Path]:
    top = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    below = [path for folder in top if folder.is_dir() for path in folder.rglob("*.*")]
    return [path for path in (*top, *below) if path.is_file()]
