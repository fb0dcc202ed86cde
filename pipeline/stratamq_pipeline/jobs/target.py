"""A job's output directory: made beside its place under another name, and renamed when it is whole.

<out>.partial/job.json     what is being made; another job's left-overs are removed
<out>.partial/made/        what will be <out>
<out>.partial/stages/      finished stages, each a file; a job begun again passes them over
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from stratamq.errors import InvalidRequestError
from stratamq_pipeline.jobs.output_files import OutputFiles, check_shared

SUFFIX = ".partial"


class Target:
    """InvalidRequestError when `out` is there already: a job never changes what is published.

    `partial` and `made` are paths in `files`, the directory in which `out` will be.
    """

    def __init__(self, out: OutputFiles) -> None:
        self.files = out.above()
        self.out = out.name
        self.partial = self.out + SUFFIX
        self.made = f"{self.partial}/made"
        self._stages = f"{self.partial}/stages"
        if out.exists():
            raise InvalidRequestError(f"{out.shown} is there already: name a fresh directory")
        if not self.files.exists():
            raise InvalidRequestError(f"there is no directory {self.files.shown}")

    def begin(self, job: Mapping[str, Any]) -> bool:
        """True when an earlier run of exactly this job continues."""
        wanted = json.dumps(job, sort_keys=True)
        record = f"{self.partial}/job.json"
        if self.files.exists(record) and self.files.read(record) == wanted:
            return True
        self.files.remove(self.partial)
        self.files.make(self._stages)
        self.files.make(self.made)
        self.files.write(record, wanted)
        return False

    def check_shared(self, spark: SparkSession) -> None:
        """InvalidRequestError when workers write elsewhere than where the driver looks. Then
        nothing is left here, unless an earlier run had begun."""
        fresh = not self.files.exists(self.partial)
        try:
            check_shared(spark, self.files, f"{self.partial}/shared")
        finally:
            if fresh:
                self.files.remove(self.partial)

    def finished(self, stage: str) -> Any:
        """What the stage gave; None when it has not been finished."""
        path = f"{self._stages}/{stage}.json"
        return json.loads(self.files.read(path)) if self.files.exists(path) else None

    def finish(self, stage: str, result: Any) -> None:
        """`result` is JSON, and not None. What the stage made must be synced."""
        self.files.write(f"{self._stages}/{stage}.json", json.dumps(result))

    def publish(self) -> None:
        """Everything made is durable on return, under the name `out`."""
        self.files.sync_tree(self.made)
        self.files.rename(self.made, self.out)
        self.files.sync([""])
        self.files.remove(self.partial)
