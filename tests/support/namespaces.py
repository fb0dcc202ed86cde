"""Two simulated machines: network namespaces with one link between them.

    with Link() as link:
        subprocess.run([*link.near.prefix, "ip", "address"])
        link.cut(link.far)
        link.mend(link.far)

A namespace has no name and no path in the file system: it exists as long as its keeper, a process
that ends when its standard input does, however the test ends; the link ends with it. Addresses are
the same in every test and conflict with no others.
"""

import os
import shutil
import subprocess
from contextlib import ExitStack, closing
from functools import cache

_LIMIT_S = 60.0
_TOOLS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
_NAME = "wire"


class NamespaceError(Exception):
    """A namespace or the link could not be made; the message holds the tool's output."""


class Machine:
    """One namespace. Commands behind `prefix` run in it; `address` is its end of the link."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._keeper.stdout is not None and self._keeper.stderr is not None
        if self._keeper.stdout.readline().strip() != "up":
            problem = self._keeper.stderr.read().strip()
            self.close()
            raise NamespaceError(f"no network namespace can be made here: {problem}")

    @property
    def namespace(self) -> str:
        return f"/proc/{self._keeper.pid}/ns/net"

    @property
    def prefix(self) -> list[str]:
        return ["nsenter", f"--net={self.namespace}", "--"]

    def ip(self, *arguments: str) -> None:
        """NamespaceError names the cause."""
        done = subprocess.run(
            [*self.prefix, "ip", *arguments], capture_output=True, text=True, timeout=_LIMIT_S
        )
        if done.returncode:
            raise NamespaceError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

    def close(self) -> None:
        self._keeper.communicate(timeout=_LIMIT_S)


class Link:
    """Two machines and a pair of veth devices between them, up."""

    def __init__(self) -> None:
        self.near: Machine
        self.far: Machine
        self._stack = ExitStack()

    def cut(self, machine: Machine) -> None:
        """Its device is down: it has no way out any more, and what the other sends is dropped
        without a word."""
        machine.ip("link", "set", _NAME, "down")

    def mend(self, machine: Machine) -> None:
        machine.ip("link", "set", _NAME, "up")

    def __enter__(self) -> "Link":
        with ExitStack() as stack:
            self.near = stack.enter_context(closing(Machine("10.0.0.1")))
            self.far = stack.enter_context(closing(Machine("10.0.0.2")))
            far = ["peer", "name", _NAME, "netns", self.far.namespace]
            self.near.ip("link", "add", _NAME, "type", "veth", *far)
            for machine in (self.near, self.far):
                machine.ip("address", "add", f"{machine.address}/24", "dev", _NAME)
                self.mend(machine)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@cache
def obstacle() -> str:
    """Why there can be no such link here; empty when there can. Tries one, once."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            return f"{tool} is missing: apt-get install -y --no-install-recommends {package}"
    try:
        with Link():
            return ""
    except NamespaceError as error:
        return f"{error} (in a container: --cap-add SYS_ADMIN --cap-add NET_ADMIN)"
