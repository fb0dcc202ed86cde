"""Has the kernel built when the package is installed, or a wheel of it is made.

Without a C compiler, or without Python's headers, the package is pure Python and does the same work
in NumPy: the message says what is slower. The module uses the limited API, so that one wheel serves
every Python from 3.11 on.
"""

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        """Compile beside the sources, where an editable installation looks; a wheel takes it."""
        if self.target_name != "wheel":
            return
        build = _builder(Path(self.root) / "kernel" / "build.py")
        target = Path(self.root) / "src" / build.MODULE
        target.unlink(missing_ok=True)
        if failure := build.compile_kernel(target):
            target.unlink(missing_ok=True)
            self.app.display_warning(
                f"stratamq is built without its kernel in C ({failure}): scans, appends, pulls and "
                "recovery do the same in Python, slower, most of all with messages of uneven "
                "sizes. With gcc and Python's headers (apt-get install gcc python3-dev) install "
                "it again."
            )
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{_platform()}"
        if version != "editable":
            build_data["force_include"] = {str(target): build.MODULE}


def _builder(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("stratamq_build_kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
