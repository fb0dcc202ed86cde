"""Settings from file, environment and command line; all faults together."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stratamq.errors import ConfigurationError
from stratamq.service.arguments import Arguments, parse_arguments
from stratamq.service.config import ServiceConfig, describe, load, setting


@dataclass(frozen=True)
class Example:
    segment_bytes: int = setting(
        1_073_741_824,
        unit="bytes",
        minimum=4096,
        maximum=2**31 - 1,
        rocketmq="mappedFileSizeCommitLog",
        doc="Size of one file of the log.",
    )
    ratio: float = setting(0.75, unit="", minimum=0.1, maximum=0.95, doc="How full.")
    write_v2: bool = setting(False, unit="", doc="Write V2 frames.")
    role: str = setting("master", unit="", choices=("master", "slave"), doc="Role.")
    followers: tuple[str, ...] = setting(("dispatcher", "index"), unit="", doc="Who follows.")
    queue_items: int | None = setting(None, unit="entries", minimum=1, doc="From the files.")
    evidence: Path | None = setting(None, unit="path", doc="Where cuts are kept.")


@dataclass(frozen=True)
class Paired:
    low: int = setting(1, unit="", doc="Low.")
    high: int = setting(2, unit="", doc="High.")

    def faults(self) -> Iterable[str]:
        if self.low > self.high:
            yield f"low ({self.low}) must not be above high ({self.high})"


def loaded(toml: str = "", tmp_path: Path | None = None, environ=None, overrides=()) -> Example:
    path = None
    if tmp_path is not None:
        path = tmp_path / "stratamq.toml"
        path.write_text(toml)
    return load(Example, "commitlog", path, environ or {}, overrides)


def faults(*arguments, **keywords) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        loaded(*arguments, **keywords)
    return raised.value.faults


def test_without_any_source_the_defaults_hold():
    assert loaded() == Example()


def test_every_type_is_read_from_toml(tmp_path):
    toml = """
        [commitlog]
        segment_bytes = 1_048_577
        ratio = 0.5
        write_v2 = true
        role = "slave"
        followers = ["index"]
        queue_items = 300
        evidence = "aside"
        [dispatcher]
        whatever = 1
    """
    assert loaded(toml, tmp_path) == Example(
        segment_bytes=1_048_577,
        ratio=0.5,
        write_v2=True,
        role="slave",
        followers=("index",),
        queue_items=300,
        evidence=Path("aside"),
    )


def test_every_type_is_read_from_the_environment():
    environ = {
        "STRATAMQ_COMMITLOG_SEGMENT_BYTES": "1_048_577",
        "STRATAMQ_COMMITLOG_RATIO": "0.5",
        "STRATAMQ_COMMITLOG_WRITE_V2": "on",
        "STRATAMQ_COMMITLOG_ROLE": "slave",
        "STRATAMQ_COMMITLOG_FOLLOWERS": "index, ha",
        "STRATAMQ_COMMITLOG_QUEUE_ITEMS": "",
        "STRATAMQ_COMMITLOG_EVIDENCE": "aside",
        "STRATAMQ_INDEX_SLOTS": "not ours",
        "PATH": "/bin",
    }
    assert loaded(environ=environ) == Example(
        segment_bytes=1_048_577,
        ratio=0.5,
        write_v2=True,
        role="slave",
        followers=("index", "ha"),
        evidence=Path("aside"),
    )


def test_the_later_source_wins(tmp_path):
    toml = "[commitlog]\nsegment_bytes = 5000\nratio = 0.2\nrole = 'slave'"
    environ = {"STRATAMQ_COMMITLOG_SEGMENT_BYTES": "6000", "STRATAMQ_COMMITLOG_RATIO": "0.3"}
    overrides = ["commitlog.segment_bytes=7000", "dispatcher.x=1", "commitlog.segment_bytes=7001"]
    config = loaded(toml, tmp_path, environ, overrides)
    assert (config.segment_bytes, config.ratio, config.role) == (7001, 0.3, "slave")


def test_all_faults_are_reported_together_with_source_and_bound(tmp_path):
    toml = "[commitlog]\nsegment_bytes = 12\nsegmet_bytes = 1\n[comitlog]\n[index]\nx = 1"
    environ = {"STRATAMQ_COMMITLOG_WRITE_V2": "maybe"}
    overrides = ["commitlog.role=slav", "commitlog.ratio", "commitlog.followrs=x", "tir.a=1"]
    assert faults(toml, tmp_path, environ, overrides) == [
        f"commitlog.segment_bytes = 12 ({tmp_path}/stratamq.toml): must be at least 4096 bytes",
        f"there is no setting commitlog.segmet_bytes ({tmp_path}/stratamq.toml); "
        "did you mean segment_bytes?",
        f"there is no section comitlog ({tmp_path}/stratamq.toml); did you mean commitlog?",
        "commitlog.write_v2 = 'maybe' (STRATAMQ_COMMITLOG_WRITE_V2): must be true or false",
        "commitlog.role = 'slav' (--set commitlog.role): must be one of master, slave; "
        "did you mean slave?",
        "--set commitlog.ratio: must have the form section.setting=value",
        "there is no setting commitlog.followrs (--set commitlog.followrs); "
        "did you mean followers?",
        "there is no section tir (--set tir.a=1); did you mean tier?",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("segment_bytes = 2147483648", "must be at most 2147483647 bytes"),
        ("segment_bytes = 1.5", "must be a whole number"),
        ("segment_bytes = true", "must be a whole number"),
        ("segment_bytes = '4096'", "must be a whole number"),
        ("ratio = nan", "must be a number"),
        ("ratio = false", "must be a number"),
        ("ratio = inf", "must be a number"),
        ("ratio = 0.96", "must be at most 0.95"),
        ("write_v2 = 1", "must be true or false"),
        ("write_v2 = 'yes'", "must be true or false"),
        ("role = 5", "must be a string"),
        ("followers = 'index'", "must be a list of strings (between commas outside TOML)"),
        ("followers = ['index', 1]", "must be a list of strings (between commas outside TOML)"),
        ("queue_items = 0", "must be at least 1 entries"),
        ("queue_items = ''", "must be a whole number"),
        ("evidence = ''", "must be a path"),
        (r'evidence = "a\u0000b"', "must not contain a NUL character"),
        ("queue_items = 2020-01-01", "must be a whole number"),
    ],
)
def test_a_wrong_value_in_toml_is_a_fault(tmp_path, line, expected):
    [fault] = faults(f"[commitlog]\n{line}", tmp_path)
    assert fault.endswith(expected)


@pytest.mark.parametrize(
    "override",
    ["segment_bytes=5", "=", "", "x", ".=1", "commitlog.=1", ".a=1", "commitlog=1", "a.b.c"],
)
def test_an_override_without_section_setting_and_value_is_a_fault(override):
    assert len(faults(overrides=[override])) == 1


@pytest.mark.parametrize("text", ["", " ", "x", "1e3", "0x10", "1.0", "9" * 5000])
def test_text_that_is_no_whole_number_is_a_fault(text):
    assert len(faults(overrides=[f"commitlog.segment_bytes={text}"])) == 1


def test_a_file_that_cannot_be_used_is_a_fault(tmp_path):
    def fault(path: Path) -> str:
        with pytest.raises(ConfigurationError) as raised:
            load(Example, "commitlog", path, {})
        [fault] = raised.value.faults
        return fault

    assert fault(tmp_path / "absent.toml").endswith("cannot be read: No such file or directory")
    assert fault(tmp_path).endswith("cannot be read: Is a directory")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    assert fault(tmp_path / "binary.toml").endswith("is not UTF-8 text")
    (tmp_path / "bad.toml").write_text("[commitlog]\na = ")
    assert "is not TOML: Invalid value" in fault(tmp_path / "bad.toml")
    (tmp_path / "loose.toml").write_text("segment_bytes = 1")
    assert "stands outside any section" in fault(tmp_path / "loose.toml")


@pytest.mark.parametrize("service", ["", "EXTERNAL_", "0_", "A_EXTERNAL_"])
def test_what_kubernetes_adds_for_services_of_our_name_is_passed_over(service):
    forms = {
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "10911",
        "SERVICE_PORT_GRPC": "10911",
        "SERVICE_PORT_GRPC_TLS": "10912",
        "PORT": "tcp://10.0.0.1:10911",
        "PORT_10911_TCP": "tcp://10.0.0.1:10911",
        "PORT_10911_TCP_PROTO": "tcp",
        "PORT_10911_TCP_PORT": "10911",
        "PORT_10911_TCP_ADDR": "10.0.0.1",
        "PORT_53_UDP": "udp://[fd00::1]:53",
    }
    for form, value in forms.items():
        assert loaded(environ={f"STRATAMQ_COMMITLOG_{service}{form}": value}) == Example()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORTS", "1"),
        ("PORT", "10911"),
        ("METRICS_PORT", "10912"),
        ("SERVICE", "10.0.0.1"),
        ("PORT_GRPC", "10911"),
        ("EXTERNAL_HOST", "10.0.0.1"),
    ],
)
def test_what_only_resembles_a_variable_of_kubernetes_is_a_setting_that_is_not_there(name, value):
    (fault,) = faults(environ={f"STRATAMQ_COMMITLOG_{name}": value})
    assert fault.startswith(f"there is no setting commitlog.{name.lower()} (STRATAMQ_COMMITLOG_")


def test_a_setting_without_default_must_be_given():
    with pytest.raises(ConfigurationError, match=r"index\.root must be set: Store directory"):
        load(ServiceConfig, "index", None, {})
    assert load(ServiceConfig, "index", None, {}, ["index.root=data"]).root == Path("data")


def test_a_required_setting_with_a_wrong_value_is_one_fault_not_two(tmp_path):
    (tmp_path / "c.toml").write_text("[index]\nroot = 7")
    with pytest.raises(ConfigurationError) as raised:
        load(ServiceConfig, "index", tmp_path / "c.toml", {})
    assert len(raised.value.faults) == 1


def test_settings_that_contradict_each_other_are_a_fault():
    with pytest.raises(ConfigurationError, match=r"commitlog: low \(3\) must not be above"):
        load(Paired, "commitlog", None, {}, ["commitlog.low=3"])


def test_any_section_may_be_allowed():
    overrides = ["unheard_of.x=1", "commitlog.low=2"]
    config = load(Paired, "commitlog", None, {}, overrides, known_sections=None)
    assert config.low == 2


def test_describe_gives_what_the_documentation_shows():
    rows = {row.name: row for row in describe(Example)}
    row = rows["segment_bytes"]
    assert (row.type, row.unit, row.default) == ("int", "bytes", 1 << 30)
    assert (row.minimum, row.maximum) == (4096, 2**31 - 1)
    assert row.rocketmq == "mappedFileSizeCommitLog"
    assert rows["queue_items"].type == "int or nothing"
    assert rows["followers"].type == "list of strings"
    assert describe(ServiceConfig)[0].required


def test_a_field_without_setting_is_a_mistake_of_the_programmer():
    @dataclass
    class Bare:
        x: int = 1

    with pytest.raises(TypeError, match="not declared with setting"):
        describe(Bare)


def test_the_command_line_names_file_directory_and_overrides():
    argv = ["--set", "index.a=1", "--config", "c.toml", "--data", "dir", "--set", "index.b=2"]
    arguments = parse_arguments("index", "Indexes.", argv)
    assert arguments.toml_path == Path("c.toml")
    assert arguments.overrides == ("index.root=dir", "index.a=1", "index.b=2")
    assert parse_arguments("index", "Indexes.", []) == Arguments(None, ())


def test_a_command_line_that_makes_no_sense_exits_like_wrong_settings(capsys):
    with pytest.raises(SystemExit) as exited:
        parse_arguments("index", "Indexes.", ["--sett", "index.a=1"])
    assert exited.value.code == 2
    assert "python -m stratamq_index" in capsys.readouterr().err
