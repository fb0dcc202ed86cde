"""`stratamq tls`: an authority and certificates for a laptop, a compose network or a small cluster.

    ca.pem       the CA certificate that clients and brokers trust
    ca.key       the CA's key, which issues certificates: keep it where no broker runs
    NAME.pem     a certificate, and NAME.key its key

Keys are elliptic (P-256); files with keys have mode 0600. Certificates of brokers have the name
`stratamq-broker`, which is in `tls.members`.
"""

import datetime
import ipaddress
import os
import re
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from stratamq.cli.options import OPERATORS
from stratamq.errors import ConfigurationError, InvalidRequestError
from stratamq.files.clock import SystemClock
from stratamq.rpc.permission_file import checked_name
from stratamq.service.tls import MEMBER

AUTHORITY_DAYS = 3650
LONGEST_DAYS = 3650
EARLIER = datetime.timedelta(hours=1)
"""Clocks of other machines may be behind."""
BROKER = "broker"
CA = "ca"
LARGEST_COMMON_NAME = 64
_HOST_NAME = re.compile(r"[\w*.-]+")
HERE = ("localhost", "127.0.0.1", "::1")

tls_app = typer.Typer(help="Make certificates for TLS.", no_args_is_help=True)

HostOption = Annotated[
    list[str] | None,
    typer.Option("--host", help="Host name or IP address that clients connect to; repeatable."),
]
DaysOption = Annotated[
    int, typer.Option(min=1, max=LONGEST_DAYS, help="Set how many days the certificates are valid.")
]


def register(app: typer.Typer) -> None:
    app.add_typer(tls_app, name="tls", rich_help_panel=OPERATORS)


@tls_app.command("init")
def init(
    directory: Annotated[
        Path,
        typer.Argument(
            help="Directory for the files; created if missing. Existing files are kept."
        ),
    ],
    host: HostOption = None,
    days: DaysOption = 365,
) -> None:
    """Create a certificate authority, and a broker's certificate for this machine and every
    --host.
    """
    authority = Authority(directory)
    hosts = [*dict.fromkeys((*HERE, socket.gethostname(), *(host or ())))]
    authority.check(hosts)
    authority.make()
    authority.issue(BROKER, MEMBER, hosts, days)
    where = directory.absolute()
    typer.echo(f"{where}: ca.pem, ca.key, {BROKER}.pem and {BROKER}.key for {', '.join(hosts)}")
    typer.echo(
        f"a broker:  stratamq up --set tls.ca={where}/ca.pem "
        f"--set tls.certificate={where}/{BROKER}.pem --set tls.key={where}/{BROKER}.key"
    )
    typer.echo(f"a client:  export STRATAMQ_TLS_CA={where}/ca.pem")
    typer.echo(f"a user's certificate:  stratamq tls issue {where} NAME")


@tls_app.command("issue")
def issue(
    directory: Annotated[Path, typer.Argument(help="Directory with ca.pem and ca.key.")],
    name: Annotated[str, typer.Argument(help="User name, as in permissions, or `broker`.")],
    host: HostOption = None,
    days: DaysOption = 365,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace NAME.pem and NAME.key if they exist.")
    ] = False,
) -> None:
    """Issue a certificate from the authority in DIRECTORY, for a user or for a broker on another
    machine (`issue DIRECTORY broker --host NAME`). Services reload replaced files."""
    _check_name(name)
    subject = MEMBER if name == BROKER else name
    hosts = [*(host or ())]
    if name == BROKER:
        hosts = [*dict.fromkeys((*HERE, *hosts))]
    Authority(directory).issue(name, subject, hosts, days, replace=replace)
    typer.echo(f"{directory.absolute() / name}.pem and .key: {subject}, for {days} days")


def _check_name(name: str) -> None:
    """InvalidRequestError for one that is no user's, or no file's."""
    checked_name(name)
    if "/" in name or name.startswith("."):
        raise InvalidRequestError(f"{name!r}: the name is also a file's: no / and no . in front")
    if len(name.encode()) > LARGEST_COMMON_NAME:
        raise InvalidRequestError(
            f"{name!r}: certificates have names of {LARGEST_COMMON_NAME} bytes"
        )
    if name == CA:
        raise InvalidRequestError(f"{CA}.pem and {CA}.key are the authority's: take another name")
    if name == MEMBER:
        raise InvalidRequestError(
            f"{MEMBER} is the name of brokers, which have all permissions: `stratamq tls issue "
            f"DIRECTORY {BROKER}` makes a certificate for one"
        )


class Authority:
    """The files of one directory. ConfigurationError without the package `cryptography`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError as error:
            raise ConfigurationError(
                [
                    "creating certificates needs the package cryptography: pip install "
                    "'stratamq[tls]'"
                ]
            ) from error
        self._x509, self._hashes, self._serialization, self._ec = x509, hashes, serialization, ec

    def check(self, hosts: list[str]) -> None:
        """InvalidRequestError for what is no host's name, before anything is made."""
        for host in hosts:
            _host_name(self._x509, host)

    def make(self) -> None:
        """InvalidRequestError when there is one."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._require_free(self._directory / "ca.pem", self._directory / "ca.key")
        key = self._ec.generate_private_key(self._ec.SECP256R1())
        name = self._named("StrataMQ authority")
        builder = self._begun(name, key.public_key(), name, AUTHORITY_DAYS)
        x509 = self._x509
        builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
        builder = builder.add_extension(_usage(x509, signs=True), critical=True)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(own, critical=False)
        self._write(CA, builder.sign(key, self._hashes.SHA256()), key)

    def issue(
        self, file: str, subject: str, hosts: list[str], days: int, *, replace: bool = False
    ) -> None:
        """`file`.pem and `file`.key. InvalidRequestError when they are there, ConfigurationError
        when the authority cannot be read."""
        paths = [self._directory / f"{file}.{kind}" for kind in ("pem", "key")]
        if not replace:
            self._require_free(*paths)
        authority, authority_key = self._authority()
        key = self._ec.generate_private_key(self._ec.SECP256R1())
        x509 = self._x509
        builder = self._begun(self._named(subject), key.public_key(), authority.subject, days)
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        builder = builder.add_extension(_usage(x509, signs=False), critical=True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
        builder = builder.add_extension(issuer, critical=False)
        uses = [x509.ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            uses.append(x509.ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_host_name(x509, host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        self._write(file, builder.sign(authority_key, self._hashes.SHA256()), key)

    def _authority(self) -> tuple[Any, Any]:
        try:
            pem = (self._directory / "ca.pem").read_bytes()
            key = (self._directory / "ca.key").read_bytes()
            return (
                self._x509.load_pem_x509_certificate(pem),
                self._serialization.load_pem_private_key(key, None),
            )
        except (OSError, ValueError, TypeError) as error:
            raise ConfigurationError(
                [f"{self._directory} has no authority ({error}): `stratamq tls init` makes one"]
            ) from error

    def _named(self, name: str) -> Any:
        x509 = self._x509
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    def _begun(self, subject: Any, public_key: Any, issuer: Any, days: int) -> Any:
        x509 = self._x509
        now = datetime.datetime.fromtimestamp(SystemClock().wall_ms() / 1000, datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - EARLIER)
            .not_valid_after(now + datetime.timedelta(days=days))
        )

    def _write(self, name: str, certificate: Any, key: Any) -> None:
        encoding = self._serialization
        pem = key.private_bytes(
            encoding.Encoding.PEM, encoding.PrivateFormat.PKCS8, encoding.NoEncryption()
        )
        # The key first: a service that sees the new certificate finds the key that fits it, or
        # keeps the old pair.
        _replace(self._directory / f"{name}.key", pem, 0o600)
        _replace(
            self._directory / f"{name}.pem",
            certificate.public_bytes(encoding.Encoding.PEM),
            0o644,
        )

    def _require_free(self, *paths: Path) -> None:
        for path in paths:
            if path.exists():
                raise InvalidRequestError(f"{path} already exists; it is not replaced")


def _replace(path: Path, content: bytes, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


def _usage(x509: Any, *, signs: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _host_name(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        if not _HOST_NAME.fullmatch(host):
            raise ValueError
        return x509.DNSName(host)
    except ValueError:
        raise InvalidRequestError(f"--host {host!r}: a name or an IP address is expected") from None
