"""Runs jobs one after the other in one Spark session of their own, and prints how each ended.

    python -m tests.pipeline.job_runs '{"master": …, "settings": {…}}'

It reads a line of JSON for each job, as `["export", {…}]`, and answers with one: the job's summary,
or the class and the sentence of its error.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.pipeline.cluster import environment

ROOT = Path(__file__).parents[2]
RUN_SECONDS = 900


Jobs = Sequence[tuple[str, Mapping[str, Any]]]
RunJobs = Callable[[Jobs], list[dict[str, Any]]]
"""Each job's facts with its `notes`; or `error` and `message`."""


@contextmanager
def driver(scratch: Path, master: str, settings: Mapping[str, str]) -> Iterator[RunJobs]:
    """The session lasts until the end; what its process logs is written below `scratch`."""
    asked = json.dumps({"master": master, "settings": dict(settings)})
    log = scratch / "driver.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.job_runs", asked],
            env=environment(), cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip

    def run(jobs: Jobs) -> list[dict[str, Any]]:
        results = []
        for job in jobs:
            print(json.dumps(job), file=process.stdin, flush=True)
            line = process.stdout.readline()
            assert line, f"the driver ended:\n{log.read_text(errors='replace')[-6000:]}"
            results.append(json.loads(line))
        return results

    with process:  # at its end no more jobs can come
        try:
            yield run
        except BaseException:
            process.kill()
            raise
    assert process.returncode == 0, log.read_text(errors="replace")[-6000:]


def main() -> None:
    from stratamq_pipeline.audit.job import AuditOptions, run_audit
    from stratamq_pipeline.export import job as export_job
    from stratamq_pipeline.export.job import ExportOptions, run_export
    from stratamq_pipeline.jobs import output_files, target
    from stratamq_pipeline.jobs.geometry import GeometryOptions
    from stratamq_pipeline.jobs.session import SparkOptions, spark_session
    from stratamq_pipeline.offload.job import OffloadOptions, run_offload
    from stratamq_pipeline.rebuild.job import RebuildOptions, run_rebuild
    from stratamq_pipeline.verify_tier.job import VerifyTierOptions, run_verify_tier

    from stratamq.errors import StrataError

    kinds: dict[str, tuple[Any, Any]] = {
        "export": (ExportOptions, run_export),
        "rebuild": (RebuildOptions, run_rebuild),
        "audit": (AuditOptions, run_audit),
        "offload": (OffloadOptions, run_offload),
        "verify-tier": (VerifyTierOptions, run_verify_tier),
    }
    asked = json.loads(sys.argv[1])
    spark = SparkOptions(asked["master"], asked["settings"])
    with spark_session("test", spark):
        for line in sys.stdin:
            name, given = json.loads(line)
            options, run = kinds[name]
            # Untested workers stand for one that came after the test.
            check = ignored if given.pop("untested", False) else output_files.check_shared
            export_job.check_shared = target.check_shared = check
            if "geometry" in given:
                given["geometry"] = GeometryOptions(*given["geometry"])
            try:
                summary = run(options(**given), spark)
            except StrataError as error:
                result = {"error": type(error).__name__, "message": error.message}
            except Exception as error:  # noqa: BLE001 - printed for the test to judge
                result = {"error": type(error).__name__, "message": str(error)}
            else:
                result = {**dataclasses.asdict(summary)["facts"], "notes": summary.notes}
            print(json.dumps(result, default=str), flush=True)


def ignored(*_: object) -> None:
    """In the place of a test."""


if __name__ == "__main__":
    main()
