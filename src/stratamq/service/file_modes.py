"""The modes of all files and directories that a process of ours makes: by its umask, which no
library that makes one can pass by."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from stratamq.service.config import SECTIONS, load, setting

SECTION = "files"
_PRIVATE_UMASK, _ROCKETMQ_UMASK = 0o027, 0o022


@dataclass(frozen=True)
class FilesConfig:
    """For every service of a broker."""

    rocketmq_modes: bool = setting(
        False,
        unit="",
        doc="Create directories with mode 0755 and files with mode 0644, as RocketMQ does, so that "
        "every user of the machine can read the messages; otherwise with 0750 and 0640, or less "
        "if the umask is stricter. Existing ones keep their modes.",
    )


def use_file_modes(
    toml_path: Path | None = None,
    overrides: Sequence[str] = (),
    known_sections: Collection[str] = SECTIONS,
) -> None:
    """From here on, for everything that this process and its children make. ConfigurationError."""
    config = load(
        FilesConfig, SECTION, toml_path, overrides=overrides, known_sections=known_sections
    )
    before = os.umask(_PRIVATE_UMASK)
    os.umask(_ROCKETMQ_UMASK if config.rocketmq_modes else before | _PRIVATE_UMASK)
