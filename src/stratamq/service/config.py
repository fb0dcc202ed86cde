"""Typed settings: a frozen dataclass per service, loaded once, every fault reported together.

Three sources, the later wins: the table `[commitlog]` of a TOML file, the environment
(`STRATAMQ_COMMITLOG_SEGMENT_BYTES`), and `--set commitlog.segment_bytes=1048576`. A field is
declared with `setting`, which carries its unit, bounds, RocketMQ's name and one sentence, and from
which `docs/configuration.md` is generated. Types: int, float, bool, str, Path, tuple[str, ...], and
any of these `| None`.

A setting that spans several fields is checked by an optional method of the dataclass,
`def faults(self) -> Iterable[str]`, whose sentences join the others.
"""

import contextlib
import dataclasses
import math
import os
import re
import tomllib
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from stratamq.errors import ConfigurationError
from stratamq.formats.nearest import did_you_mean
from stratamq.rpc.address import is_unix, split_address
from stratamq.rpc.rooms import SERVICES

# Every section that a configuration file shared by all services may hold.
SECTIONS = (*SERVICES, "tls", "access", "limits", "tracing", "files")

_METADATA = "stratamq.setting"
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})

# What Kubernetes adds to every container for Services named `stratamq-commitlog`,
# `stratamq-commitlog-0`, …: not ours. `…_PORT` alone may be a setting; the value tells.
_KUBERNETES = re.compile(
    r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
    r"=.*|(\w+_)?PORT=(tcp|udp|sctp)://.*",
    re.DOTALL,
)

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One documented setting. `minimum` and `maximum` are inclusive; None means unbounded."""

    name: str
    type: str
    default: object
    required: bool
    unit: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    rocketmq: str | None
    doc: str


def setting(
    default: Any = dataclasses.MISSING,
    *,
    unit: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
    rocketmq: str | None = None,
    doc: str,
) -> Any:
    """Declare a field of a settings dataclass; without a default it is required.

    `unit` is "" for a value without one. `rocketmq` is the name of the corresponding property of
    RocketMQ's MessageStoreConfig or BrokerConfig.
    """
    metadata = {
        _METADATA: {
            "unit": unit,
            "minimum": minimum,
            "maximum": maximum,
            "choices": tuple(choices),
            "rocketmq": rocketmq,
            "doc": doc,
        }
    }
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)


@dataclasses.dataclass(frozen=True)
class ServiceConfig:
    """What every service needs; a room's config derives from it and gives `address` its port."""

    root: Path = setting(
        unit="path",
        rocketmq="storePathRootDir",
        doc="Store directory, shared by all services of a broker.",
    )
    address: str = setting(
        "127.0.0.1:0",
        unit="host:port",
        doc="Address to listen on; port 0 takes a free port, which the run file announces.",
    )
    advertised_host: str = setting(
        "",
        unit="host",
        doc="Host name or IP address at which the broker's other services reach this one, if they "
        "run on other hosts or in other containers; empty: the host of `address`.",
    )
    metrics_address: str = setting(
        "127.0.0.1:0",
        unit="host:port",
        doc="Address that Prometheus scrapes; empty: no metrics are served.",
    )
    log_format: str = setting(
        "text",
        unit="",
        choices=("text", "json"),
        doc="Format of log lines: text for people, JSON for programs.",
    )
    log_level: str = setting(
        "INFO",
        unit="",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        doc="Least severe level that is logged.",
    )
    stop_grace_ms: int = setting(
        5_000,
        unit="ms",
        minimum=0,
        maximum=600_000,
        doc="Time that calls in flight have to finish after a stop was requested.",
    )


@dataclasses.dataclass(frozen=True)
class FollowerConfig(ServiceConfig):
    """Settings of a service that needs its broker's log."""

    log_address: str = setting(
        "",
        unit="host:port",
        doc="Address of the commit log service; empty: taken from its run file.",
    )


def load(
    cls: type[Config],
    section: str,
    toml_path: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    *,
    known_sections: Collection[str] | None = SECTIONS,
) -> Config:
    """Build `cls` from its three sources; `environ` defaults to the process's environment.

    Raises ConfigurationError with every fault found, a sentence each. A section outside
    `known_sections` is a fault (None: any is allowed); settings of other known sections are left
    to their owners.
    """
    environ = os.environ if environ is None else environ
    if known_sections is not None and section not in known_sections:
        known_sections = (*known_sections, section)
    loading = _Loading(section, known_sections, describe(cls), typing.get_type_hints(cls))
    if toml_path is not None:
        loading.read_toml(Path(toml_path))
    loading.read_environment(environ)
    for override in overrides:
        loading.read_override(override)
    loading.require()
    if loading.faults:
        raise ConfigurationError(loading.faults)
    config = cls(**loading.values)
    if faults := [f"{section}: {fault}" for fault in getattr(config, "faults", tuple)()]:
        raise ConfigurationError(faults)
    return config


def describe(cls: type) -> list[Setting]:
    """The settings of `cls` in the order of declaration, for documentation and for loading."""
    hints = typing.get_type_hints(cls)
    settings = []
    for field in dataclasses.fields(cls):
        metadata = field.metadata.get(_METADATA)
        if metadata is None:
            raise TypeError(f"{cls.__name__}.{field.name} is not declared with setting()")
        required = field.default is dataclasses.MISSING
        settings.append(
            Setting(
                name=field.name,
                type=_type_name(hints[field.name]),
                default=None if required else field.default,
                required=required,
                **metadata,
            )
        )
    return settings


class _Loading:
    """Values and faults of one section while its sources are read, in order."""

    def __init__(
        self,
        section: str,
        known_sections: Collection[str] | None,
        settings: list[Setting],
        hints: dict[str, Any],
    ) -> None:
        self.section = section
        self.known_sections = known_sections
        self.settings = {setting.name: setting for setting in settings}
        self.hints = hints
        self.values: dict[str, object] = {}
        self.faults: list[str] = []
        self._named: set[str] = set()  # named by some source, rightly or wrongly

    def read_toml(self, path: Path) -> None:
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            self.faults.append(f"{path} cannot be read: {error.strerror}")
            return
        except UnicodeDecodeError:
            self.faults.append(f"{path} is not UTF-8 text")
            return
        except tomllib.TOMLDecodeError as error:
            self.faults.append(f"{path} is not TOML: {error}")
            return
        for name, table in document.items():
            if not isinstance(table, dict):
                self.faults.append(f"{name} in {path} stands outside any section")
            elif self._section_known(name, str(path)) and name == self.section:
                for key, value in table.items():
                    self._take(key, value, str(path))

    def read_environment(self, environ: Mapping[str, str]) -> None:
        prefix = f"STRATAMQ_{self.section.upper()}_"
        for variable in sorted(environ):
            if not variable.startswith(prefix):
                continue
            name = variable.removeprefix(prefix)
            value = environ[variable]
            if name.lower() not in self.settings and _KUBERNETES.fullmatch(f"{name}={value}"):
                continue
            self._take(name.lower(), value, variable, text=True)

    def read_override(self, override: str) -> None:
        key, equals, text = override.partition("=")
        section, dot, name = key.strip().partition(".")
        if not (equals and dot and section and name):
            self.faults.append(f"--set {override}: must have the form section.setting=value")
        elif self._section_known(section, f"--set {override}") and section == self.section:
            self._take(name, text.strip(), f"--set {key.strip()}", text=True)

    def require(self) -> None:
        for name, declared in self.settings.items():
            if declared.required and name not in self._named:
                self.faults.append(f"{self.section}.{name} must be set: {declared.doc}")

    def _section_known(self, section: str, source: str) -> bool:
        if self.known_sections is None or section in self.known_sections:
            return True
        hint = did_you_mean(section, self.known_sections)
        self.faults.append(f"there is no section {section} ({source}){hint}")
        return False

    def _take(self, name: str, raw: object, source: str, *, text: bool = False) -> None:
        declared = self.settings.get(name)
        if declared is None:
            hint = did_you_mean(name, self.settings)
            self.faults.append(f"there is no setting {self.section}.{name} ({source}){hint}")
            return
        self._named.add(name)
        try:
            value = _convert(raw, self.hints[name], text=text)
            _check_bounds(value, declared)
        except ValueError as fault:
            self.faults.append(f"{self.section}.{name} = {raw!r} ({source}): {fault}")
        else:
            self.values[name] = value


def _convert(raw: object, hint: Any, *, text: bool) -> object:
    """The value of a TOML item or, with `text`, of a string. ValueError: what is expected."""
    base, optional = _without_none(hint)
    if optional and text and raw == "":
        return None
    if typing.get_origin(base) is tuple:
        return _convert_list(raw, text=text)
    if base is bool:
        return _convert_bool(raw, text=text)
    if base is int:
        return _convert_int(raw, text=text)
    if base is float:
        return _convert_float(raw, text=text)
    if base in (str, Path):
        if not isinstance(raw, str):
            raise ValueError("must be a string")
        if "\0" in raw:
            raise ValueError("must not contain a NUL character")
        if base is Path and not raw:
            raise ValueError("must be a path")
        return base(raw)
    raise TypeError(f"settings cannot have the type {hint}")


def _convert_bool(raw: object, *, text: bool) -> bool:
    if isinstance(raw, bool):
        return raw
    word = raw.lower() if text and isinstance(raw, str) else None
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("must be true or false")


def _convert_int(raw: object, *, text: bool) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if text and isinstance(raw, str):
        with contextlib.suppress(ValueError):
            return int(raw)
    raise ValueError("must be a whole number")


def _convert_float(raw: object, *, text: bool) -> float:
    number = math.nan
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        number = float(raw)
    elif text and isinstance(raw, str):
        with contextlib.suppress(ValueError):
            number = float(raw)
    if not math.isfinite(number):
        raise ValueError("must be a number")
    return number


def _convert_list(raw: object, *, text: bool) -> tuple[str, ...]:
    if text and isinstance(raw, str):
        return tuple(item.strip() for item in raw.split(",") if item.strip())
    if isinstance(raw, list) and all(isinstance(item, str) for item in raw):
        return tuple(raw)
    raise ValueError("must be a list of strings (between commas outside TOML)")


def _check_bounds(value: object, declared: Setting) -> None:
    if value is None:
        return
    unit = f" {declared.unit}" if declared.unit else ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if declared.minimum is not None and value < declared.minimum:
            raise ValueError(f"must be at least {declared.minimum}{unit}")
        if declared.maximum is not None and value > declared.maximum:
            raise ValueError(f"must be at most {declared.maximum}{unit}")
    for item in value if isinstance(value, tuple) else (value,):
        if declared.choices and item not in declared.choices:
            hint = did_you_mean(str(item), declared.choices)
            raise ValueError(f"must be one of {', '.join(declared.choices)}{hint}")
        if declared.unit == "host:port" and item and not is_unix(str(item)):
            try:
                split_address(str(item))
            except ConfigurationError as error:
                raise ValueError("must be host:port") from error


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        if len(members) == 1:
            return members[0], True
    return hint, False


def _type_name(hint: Any) -> str:
    base, optional = _without_none(hint)
    name = "list of strings" if typing.get_origin(base) is tuple else base.__name__
    return f"{name} or nothing" if optional else name
