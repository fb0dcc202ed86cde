"""The console's files are replaced while it runs: it shows those of the version that it is."""

import shutil

import pytest
from stratamq_console.app import HERE

from tests.console.pages import browsing


@pytest.fixture
def files(tmp_path):
    """A console's own files, which a test may replace."""
    for name in ("templates", "static"):
        shutil.copytree(HERE / name, tmp_path / name)
    return tmp_path


async def test_an_upgrade_in_place_does_not_mix_versions(broker, files):
    async with browsing(broker.root, files=files) as browser:
        topics = (await browser.get("/topics")).text
        style = (await browser.get("/static/style.css")).content
        for one in (*(files / "templates").iterdir(), *(files / "static").iterdir()):
            one.write_text("of the next version: {{ what.this.one.does.not.have }}")
        assert "next version" not in topics
        for path in ("/topics", "/groups", "/cluster", "/no-such-page"):
            page = await browser.get(path)
            assert page.status_code < 500 and "StrataMQ" in page.text, path
            assert "next version" not in page.text, path
        assert (await browser.get("/static/style.css")).content == style


async def test_files_that_an_upgrade_removes_are_served_as_before(broker, files):
    async with browsing(broker.root, files=files) as browser:
        for name in ("templates", "static"):
            shutil.rmtree(files / name)
        assert (await browser.get("/groups")).status_code == 200
        assert (await browser.get("/static/page.js")).status_code == 200


async def test_a_static_file_has_its_kind_and_comes_once(broker):
    async with browsing(broker.root) as browser:
        for name, kind in (
            ("style.css", "text/css"),
            ("page.js", "javascript"),
            ("icon.svg", "svg"),
        ):
            first = await browser.get(f"/static/{name}")
            assert kind in first.headers["content-type"], name
            again = await browser.get(f"/static/{name}", **{"If-None-Match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        for name in ("none.css", "..%2fapp.py", "%2e%2e/app.py"):
            assert (await browser.get(f"/static/{name}")).status_code == 404, name
