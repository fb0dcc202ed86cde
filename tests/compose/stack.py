"""A compose project made from a copy of the tree: what a user has after `git clone`, and a name,
ports and settings of its own, so that stacks do not meet."""

import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stratamq_bench.ports import free_port

from stratamq.client import Client, connect
from tests.support import waiting

ROOT = Path(__file__).resolve().parents[2]
BUILD_S, UP_S, COMMAND_S = 900, 420, 120
RETRY_TIMEOUT_S = 180
ROOMS = ("commitlog", "dispatcher", "index", "ha", "janitor", "delivery")
SIDES = ("", "replica-")
"""What the names of a broker's services begin with."""
A, B, C = (tuple(f"{shard}{number}" for number in (1, 2, 3)) for shard in "abc")
"""The members of the shards, a container each."""
ETCDS = ("etcd1", "etcd2", "etcd3")
PORTS = {
    "commitlog": 10911,
    "dispatcher": 10913,
    "index": 10914,
    "ha": 10915,
    "janitor": 10916,
    "delivery": 10919,
    "agent": 10918,
}
"""Of a member, at its address."""
SMALL = {
    "STRATAMQ_COMMITLOG_SEGMENT_BYTES": "1048576",
    "STRATAMQ_INDEX_INDEX_SLOTS": "1000",
    "STRATAMQ_INDEX_INDEX_ITEMS": "4000",
}

SIGNAL = (
    r"for one in /proc/[0-9]*; do if tr '\0+' '\n\n' <$one/cmdline 2>/dev/null | grep -qx $1;"
    " then [ $one = /proc/$$ ] || kill -$0 ${one#/proc/}; fi; done"
)
"""$0 to the processes that have $1 among their arguments, or run it, but this shell."""

until = partial(waiting.until, deadline_s=UP_S, look_s=0.3)
"""Each look is a command of docker's."""


@dataclass(frozen=True)
class Shape:
    """Compose files and profiles, and the services that they have: those of brokers that have a
    container for each, of members that are one, and others."""

    files: tuple[str, ...] = ("compose.yaml",)
    profiles: tuple[str, ...] = ()
    """Empty: what .env names, one broker."""
    sides: tuple[str, ...] = SIDES[:1]
    members: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def services(self) -> list[str]:
        brokers = [side + room for side in self.sides for room in ROOMS]
        return [*brokers, *self.members, *self.others]


ONE = Shape()
PAIR = Shape(("compose.yaml", "replica.yaml"), sides=SIDES)
SHARD = Shape(profiles=("shard",), sides=(), members=A, others=ETCDS)
SHARDS = Shape(profiles=("shards",), sides=(), members=(*A, *B, *C), others=ETCDS)
SPARK = ("spark-master", "spark-worker")
SHARDS_AND_SPARK = Shape(
    profiles=("shards", "spark"), sides=(), members=SHARDS.members, others=(*ETCDS, *SPARK)
)


def copy_tree(place: Path, wheels: str | None) -> None:
    """Every file that git knows or would add, and the wheels where containers have no way out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, os.fsdecode(listed).split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place / name)
    if wheels:
        for wheel in Path(wheels).glob("*.whl"):
            shutil.copy(wheel, place / "deploy" / "wheels")


def docker(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=COMMAND_S)
    assert not check or done.returncode == 0, f"docker {shlex.join(arguments)}:\n{done.stderr}"
    return done.stdout.strip()


class Stack:
    """One compose project. `settings` are added to broker.env."""

    def __init__(
        self,
        tree: Path,
        name: str,
        image: str,
        settings: Mapping[str, str] = {},
        shape: Shape = ONE,
    ) -> None:
        self.name = name
        self.image = image
        self.etcd_image = f"{image}-etcd"
        self.spark_image = f"{image}-spark"
        self.shape = shape
        self._compose = shlex.split(os.environ["COMPOSE"])
        self._place = Path(tempfile.mkdtemp(dir=tree.parent, prefix=name)) / "stratamq"
        shutil.copytree(tree, self._place)
        names = [side + room for side in SIDES for room in (*ROOMS, "replication", "tier")]
        self._published = {name: free_port() for name in names}
        self.loopback = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(250) + 1}"
        """Members of shards have an address each below it."""
        lines = [
            f"COMPOSE_PROJECT_NAME={name}",
            f"STRATAMQ_MEMBERS={self.loopback}",
            f"STRATAMQ_IMAGE={image}",
            f"STRATAMQ_ETCD_IMAGE={self.etcd_image}",
            f"STRATAMQ_SPARK_IMAGE={self.spark_image}",
            f"STRATAMQ_SPARK_PORT={free_port()}",
            *(
                f"STRATAMQ_{name.upper().replace('-', '_')}_PORT={port}"
                for name, port in self._published.items()
            ),
        ]
        self.set_compose(lines)
        self.set(SMALL | dict(settings))

    def set_compose(self, lines: Sequence[str]) -> None:
        """In .env: NAME=VALUE each."""
        self._append(".env", lines)

    def set(self, settings: Mapping[str, str]) -> None:
        """In broker.env, where the last line of a name counts; `up` makes it so."""
        self._append("broker.env", [f"{name}={value}" for name, value in settings.items()])

    def add_wheels(self, directory: Path) -> None:
        """For an image that is built where containers have no way out."""
        for wheel in directory.glob("*.whl"):
            shutil.copy(wheel, self._place / "deploy" / "wheels")

    def add_file(self, name: str, text: str) -> None:
        """Beside the compose files: one that the shape names."""
        (self._place / "deploy" / name).write_text(text)

    def _append(self, file: str, lines: Sequence[str]) -> None:
        path = self._place / "deploy" / file
        path.write_text(path.read_text() + "\n".join(lines) + "\n")

    # --- the project ---

    @property
    def waits(self) -> bool:
        """1.29 has no --wait."""
        return self._compose[0] == "docker"

    def run(
        self, *arguments: str, timeout_s: float = COMMAND_S, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        files = [part for name in self.shape.files for part in ("-f", name)]
        profiles = [part for name in self.shape.profiles for part in ("--profile", name)]
        command = [*self._compose, *files, *profiles, *arguments]
        done = subprocess.run(
            command,
            cwd=self._place / "deploy",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=_environment(),
        )
        assert not check or done.returncode == 0, (
            f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
        return done

    def up(self, *, build: bool = False) -> None:
        """What a user types; without --wait the health checks are waited for here."""
        if self.waits:
            options = ["--build"] if build else []
            self.run("up", *options, "--wait", timeout_s=BUILD_S if build else UP_S)
        else:
            if build:
                self.run("build", timeout_s=BUILD_S)
            self.run("up", "--detach", timeout_s=UP_S)
        until(self.healthy, f"healthy services of {self.name}")

    def down(self, *, volumes: bool = False) -> None:
        self.run("down", *(["--volumes"] if volumes else []))

    def services(self) -> list[str]:
        return self.shape.services()

    def healthy(self) -> bool:
        return all(self.state(name) == "healthy" for name in self.services())

    def exit_codes(self) -> dict[str, int]:
        return {name: self.inspect(name)["State"]["ExitCode"] for name in self.services()}

    def look(self, script: str, side: str = "") -> str:
        """What a shell sees of the volume, in a container of its own."""
        volume = f"{self.name}_{self.volume(side)}:/data"
        return docker("run", "--rm", "-v", volume, self.image, "sh", "-c", script)

    def volume(self, side: str) -> str:
        return side if side in self.shape.members else f"{side}data"

    def remove_volume(self, name: str) -> None:
        """Of containers that are gone."""
        docker("volume", "rm", f"{self.name}_{name}")

    # --- one container ---

    def container(self, service: str) -> str:
        """Asked of the engine, which answers ten times faster than 1.29."""
        labels = (
            f"com.docker.compose.{key}={value}"
            for key, value in (("project", self.name), ("service", service), ("oneoff", "False"))
        )
        filters = [part for label in labels for part in ("--filter", f"label={label}")]
        return docker("ps", "--all", "--quiet", "--no-trunc", *filters)

    def inspect(self, service: str) -> dict:
        return json.loads(docker("inspect", self.container(service)))[0]

    def state(self, service: str) -> str:
        """The result of the health check; `absent` without a container."""
        container = self.container(service)
        return (
            docker("inspect", "-f", "{{.State.Health.Status}}", container)
            if container
            else "absent"
        )

    def until_healthy(self, service: str) -> None:
        until(lambda: self.state(service) == "healthy", f"{service} to be healthy")

    def crash(self, service: str) -> None:
        """SIGKILL from outside, as the kernel would: the restart policy brings the service back.

        Where the engine's processes are not ours to kill, its own kill and a start."""
        before = self.inspect(service)["State"]
        if os.geteuid() == 0 and self._is_here(service, before["Pid"]):
            os.kill(before["Pid"], signal.SIGKILL)
        else:
            self.run("kill", "-s", "SIGKILL", service)
            self.run("start", service)
        until(
            lambda: self.inspect(service)["State"]["StartedAt"] != before["StartedAt"],
            f"a new start of {service}",
        )

    def _is_here(self, service: str, pid: int) -> bool:
        """Whether the process of that number, on this machine, is the container's."""
        groups = Path(f"/proc/{pid}/cgroup")
        return groups.exists() and self.container(service) in groups.read_text()

    def signal_room(self, member: str, room: str, name: str) -> None:
        """To one service of a member; one that is killed `up` starts again."""
        self.execute(member, "sh", "-c", SIGNAL, name, f"stratamq_{room}")

    def pause(self, service: str) -> None:
        self.run("pause", service)

    def unpause(self, service: str) -> None:
        self.run("unpause", service)

    def disconnect(self, service: str) -> None:
        docker("network", "disconnect", f"{self.name}_default", self.container(service))

    def connect(self, service: str) -> None:
        """The service's names must be given again: compose is not queried."""
        names = (service, "cluster") if service in self.shape.members else (service,)
        aliases = [part for name in names for part in ("--alias", name)]
        docker("network", "connect", *aliases, f"{self.name}_default", self.container(service))

    def execute(
        self, service: str, *command: str, check: bool = True, timeout_s: float = COMMAND_S
    ) -> str:
        words = ("exec", "-T", service, *command)
        return self.run(*words, check=check, timeout_s=timeout_s).stdout

    # --- from outside ---

    def address(self, side: str = "") -> str:
        """For `--address`: the services of the broker of that side, or of that member, at their
        published ports; of shards, without a member, the logs of all members."""
        if side in self.shape.members:
            host = self.host(side)
            return ",".join(f"{room}={host}:{port}" for room, port in PORTS.items())
        if self.shape.members:
            return ",".join(f"{self.host(one)}:{PORTS['commitlog']}" for one in self.shape.members)
        rooms = [*ROOMS, *(room for room in ("tier",) if side + room in self.shape.others)]
        return ",".join(f"{room}=127.0.0.1:{self._published[side + room]}" for room in rooms)

    def host(self, member: str) -> str:
        """The address of this machine at which its ports are published."""
        return f"{self.loopback}.{'abc'.index(member[0]) + 1}{member[1]}"

    def client(
        self, side: str = "", *, timeout_s: float = 30.0, retry_timeout_s: float = RETRY_TIMEOUT_S
    ) -> Client:
        return connect(self.address(side), timeout_s=timeout_s, retry_timeout_s=retry_timeout_s)

    def log_container(self, side: str) -> str:
        return side if side in self.shape.members else f"{side}commitlog"

    def segments(self, side: str = "") -> dict[str, str]:
        """The log's segments by name, each as its SHA-256."""
        log = self.log_container(side)
        output = self.execute(log, "sh", "-c", "cd /data/commitlog && sha256sum -- *")
        return {name: digest for digest, name in (line.split() for line in output.splitlines())}


def _environment() -> dict[str, str]:
    """Compose lets the shell's variables win over .env."""
    ours = ("STRATAMQ_", "COMPOSE_PROFILES", "COMPOSE_FILE")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
