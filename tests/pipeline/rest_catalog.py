"""Iceberg's own server of a REST catalog, over a directory. Needs Java 17 and Maven."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from stratamq_bench.ports import free_port

from tests.support.java import QUICK_START
from tests.support.waiting import until

HERE = Path(__file__).parents[1] / "interop" / "iceberg-rest"
MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


@contextmanager
def rest_catalog(directory: Path, warehouse: str) -> Iterator[str]:
    """Its address. Tables are in a database of SQLite in `directory`."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    environment = os.environ | {
        "CATALOG_WAREHOUSE": warehouse,
        "CATALOG_URI": f"jdbc:sqlite:{directory / 'rest.db'}",
        "CATALOG_REST_PORT": str(port),
    }
    with open(directory / "rest.log", "wb") as output:
        server = subprocess.Popen(
            ["java", *QUICK_START.split(), "-cp", f"{_jars()}/*", MAIN],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )

    def answers() -> bool:
        assert server.poll() is None, (directory / "rest.log").read_text()
        try:
            return requests.get(f"{address}/v1/config", timeout=10).ok
        except requests.RequestException:
            return False

    try:
        until(answers, "the catalog answers")
        yield address
    finally:
        server.kill()
        server.wait()


def _jars() -> Path:
    """Fetched once, by whichever test process comes first."""
    target = HERE / "target"
    target.mkdir(exist_ok=True)
    with (target / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "jars").exists():
            fetched = target / "fetched"
            command = ["mvn", "-q", "-B", "-f", HERE / "pom.xml", COPY]
            subprocess.run([*command, f"-DoutputDirectory={fetched}"], check=True)
            fetched.rename(target / "jars")
    return target / "jars"
