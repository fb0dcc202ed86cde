"""An authority, and certificates of brokers and users, made once."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from stratamq.cli.tls import Authority
from stratamq.rpc.credentials import Credentials, TlsFiles
from stratamq.service.tls import MEMBER

HOSTS = ["localhost", "127.0.0.1", "::1"]


@dataclass(frozen=True)
class Pki:
    """One authority's directory."""

    directory: Path

    def settings(self, *more: str) -> list[str]:
        """Of a broker."""
        return [
            f"tls.ca={self.directory}/ca.pem",
            f"tls.certificate={self.directory}/broker.pem",
            f"tls.key={self.directory}/broker.key",
            *more,
        ]

    def user(self, name: str) -> Credentials:
        files = (self.directory / part for part in ("ca.pem", f"{name}.pem", f"{name}.key"))
        return Credentials(TlsFiles(*files))

    def token(self, token: str = "") -> Credentials:
        """Nothing is shown but the token."""
        return Credentials(TlsFiles(self.directory / "ca.pem"), token)


def made(directory: Path, *users: str) -> Pki:
    authority = Authority(directory)
    authority.make()
    authority.issue("broker", MEMBER, HOSTS, 2)
    for user in users:
        authority.issue(user, user, [], 2)
    return Pki(directory)


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return made(tmp_path_factory.mktemp("pki"), "alice", "ops")


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Another authority, with the same names."""
    return made(tmp_path_factory.mktemp("foreign"), "alice")
