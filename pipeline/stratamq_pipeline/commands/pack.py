"""`stratamq pipeline zip`: the code as one file for a cluster."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer


def pack(
    path: Annotated[Path, typer.Argument(help="the zip to write")],
) -> None:
    """Write the code as one zip, and the program for spark-submit beside it.

    Executors need PySpark and the libraries that the last line names; nothing of StrataMQ has to be
    installed there. Jobs begun with `stratamq pipeline JOB --master …` send this zip by themselves.
    """
    from stratamq_pipeline.code_zip import LIBRARIES, submit_script, write_code_zip

    modules = write_code_zip(path)
    script = path.with_name("stratamq_job.py")
    shutil.copyfile(submit_script(), script)
    sys.stdout.write(
        f"{path}: {modules} modules\n"
        f"spark-submit --master spark://HOST:PORT --py-files {path} {script} JOB …\n"
        f"executors need: {' '.join(LIBRARIES)}\n"
    )
