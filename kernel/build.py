"""Compiles the extension module `stratamq._kernel` with the C compiler that Python was built with.

python kernel/build.py          into this checkout, beside the sources of the package
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
MODULE = "stratamq/_kernel.abi3.so"
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


def compile_kernel(target: Path, *flags: str, sources: Path = SOURCES) -> str:
    """Make the extension module `target`; what went wrong, or nothing at all."""
    linker = (sysconfig.get_config_var("LDSHARED") or "cc -shared").split()
    include = f"-I{sysconfig.get_path('include')}"
    command = [*linker, *_FLAGS, include, *flags, str(sources / "module.c"), "-o", str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if done.returncode:
        return next(iter(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
    return ""


if __name__ == "__main__":
    sys.exit(compile_kernel(SOURCES.parent / "src" / MODULE) or None)
