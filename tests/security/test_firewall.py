"""The ruleset of docs/security.md in a network namespace, and connections from two other hosts."""

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
OPEN_CONNECTIONS, BURST = 200, 50
BROKER, ATTACKER, TRUSTED = "198.51.100.1", "198.51.100.2", "198.51.100.3"

CONNECT = """
import socket, sys
opened = []
for _ in range(int(sys.argv[2])):
    try:
        opened.append(socket.create_connection((sys.argv[1], 10911), timeout=0.2))
    except OSError:
        pass
print(len(opened))
"""
LISTEN = """
import socket
server = socket.create_server(("", 10911), backlog=1024)
print("listening", flush=True)
while True:
    server.accept()[0].detach()
"""


def in_namespace(name: str, *command: str) -> list[str]:
    return ["ip", "netns", "exec", name, *command]


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def hosts() -> Iterator[dict[str, str]]:
    """Namespaces by address, joined by a bridge in the broker's."""
    if os.geteuid() or not shutil.which("nft") or not shutil.which("ip"):
        pytest.skip("needs root, nftables and iproute2 (apt-get install nftables iproute2)")
    unique = uuid.uuid4().hex[:6]
    names = {
        address: f"smq{unique}{number}"
        for number, address in enumerate((BROKER, ATTACKER, TRUSTED))
    }
    made: list[str] = []
    try:
        try:
            for name in names.values():
                run("ip", "netns", "add", name)
                made.append(name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine makes no network namespaces: {error.stderr.strip()}")
        broker = names[BROKER]
        run(*in_namespace(broker, "ip", "link", "add", "bridge0", "type", "bridge"))
        run(*in_namespace(broker, "ip", "addr", "add", f"{BROKER}/24", "dev", "bridge0"))
        run(*in_namespace(broker, "ip", "link", "set", "bridge0", "up"))
        for number, address in enumerate((ATTACKER, TRUSTED)):
            peer = names[address]
            run(*in_namespace(broker, "ip", "link", "add", f"port{number}", "type", "veth",
                              "peer", "name", "eth0", "netns", peer))  # fmt: skip
            run(
                *in_namespace(
                    broker, "ip", "link", "set", f"port{number}", "master", "bridge0", "up"
                )
            )
            run(*in_namespace(peer, "ip", "addr", "add", f"{address}/24", "dev", "eth0"))
            run(*in_namespace(peer, "ip", "link", "set", "eth0", "up"))
        yield names
    finally:
        for name in made:
            run("ip", "netns", "del", name)


def test_the_firewall_of_the_page_bounds_a_host_and_no_other(hosts, tmp_path):
    block = re.search(r"```nft\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    ruleset = tmp_path / "stratamq.nft"
    ruleset.write_text(block[1].replace("127.0.0.0/8", f"127.0.0.0/8, {TRUSTED}"))
    broker = hosts[BROKER]
    run(*in_namespace(broker, "nft", "-f", str(ruleset)))
    with subprocess.Popen(
        in_namespace(broker, sys.executable, "-c", LISTEN), stdout=subprocess.PIPE, text=True
    ) as listener:
        try:
            assert listener.stdout is not None
            assert listener.stdout.readline() == "listening\n"

            def connections(address: str, tries: int) -> int:
                script = (sys.executable, "-c", CONNECT, BROKER, str(tries))
                return int(run(*in_namespace(hosts[address], *script)))

            assert BURST <= connections(ATTACKER, OPEN_CONNECTIONS + 100) <= OPEN_CONNECTIONS
            assert connections(TRUSTED, OPEN_CONNECTIONS + 100) == OPEN_CONNECTIONS + 100
        finally:
            listener.kill()
