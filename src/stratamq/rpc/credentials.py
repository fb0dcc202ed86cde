"""How a process authenticates itself and its peer: TLS files and a token.

For clients they come from the environment, unless the caller gives them:

    STRATAMQ_TLS_CA            CA certificate (PEM); enables TLS
    STRATAMQ_TLS_CERTIFICATE   client certificate (PEM), for a service that requires it
    STRATAMQ_TLS_KEY           its key
    STRATAMQ_TOKEN_FILE        a file with the token, one line; or
    STRATAMQ_TOKEN             the token

A Unix socket is never encrypted: the permissions of its directory decide who connects. A token goes
over TLS, a Unix socket or loopback only.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from stratamq.errors import ConfigurationError, InvalidRequestError
from stratamq.files.configured_files import FileStamp, read_whole, stamp_of
from stratamq.rpc.address import is_local, is_unix
from stratamq.rpc.permission_file import AUTHORIZATION, BEARER

CA_VARIABLE = "STRATAMQ_TLS_CA"
CERTIFICATE_VARIABLE = "STRATAMQ_TLS_CERTIFICATE"
KEY_VARIABLE = "STRATAMQ_TLS_KEY"
TOKEN_VARIABLE = "STRATAMQ_TOKEN"
TOKEN_FILE_VARIABLE = "STRATAMQ_TOKEN_FILE"

LARGEST_PEM_BYTES = 1 << 20
LARGEST_TOKEN_BYTES = 256

Stamp = tuple[FileStamp, ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. `ca`: certificates to trust. `certificate` (with its chain) and `key`: the
    client's own; set both or neither."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) is not (self.key is None):
            raise ConfigurationError(["a TLS certificate needs its key, and a key its certificate"])

    def stamp(self) -> Stamp:
        """Differs after a file was replaced. ConfigurationError when one is not there."""
        return tuple(stamp_of(path) for path in (self.ca, self.certificate, self.key) if path)

    def read(self) -> "TlsBytes":
        """The files, checked to fit together. ConfigurationError."""
        self._check()
        paths = (self.ca, self.certificate, self.key)
        return TlsBytes(*(path and read_whole(path, LARGEST_PEM_BYTES) for path in paths))

    def _check(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.ca is not None:
                context.load_verify_locations(self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            wrong = ", ".join(str(path) for path in (self.ca, self.certificate, self.key) if path)
            reason = str(error) if isinstance(error, ssl.SSLError) else _reason(error)
            raise ConfigurationError([f"TLS files {wrong}: {reason}"]) from error


@dataclass(frozen=True, slots=True)
class TlsBytes:
    """What `TlsFiles` name, as PEM."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None = field(repr=False)


@dataclass(slots=True)
class Credentials:
    """Credentials of one client or service. Connections made after a file was replaced use the new
    one.

    Clients without explicit credentials use the environment: STRATAMQ_TLS_CA, a PEM file with the
    CA certificates to trust, enables TLS; STRATAMQ_TLS_CERTIFICATE and STRATAMQ_TLS_KEY;
    STRATAMQ_TOKEN_FILE, a file with a token of `stratamq acl token`, or STRATAMQ_TOKEN.
    """

    tls: TlsFiles | None = None
    token: str = field(default="", repr=False)
    _made: tuple[Stamp, grpc.ChannelCredentials] | None = field(default=None, repr=False)

    def connect(self, kind: Any, address: str, options: Any, host: str = "") -> Any:
        """A channel to `address`; `kind` is the module `grpc` or `grpc.aio`. `host`: the name that
        its certificate is checked against, "" the address's own.

        ConfigurationError when the TLS files cannot be used; InvalidRequestError when the token
        would go to another machine in clear."""
        if self.tls is None or is_unix(address):
            if self.token and not is_local(address):
                raise InvalidRequestError(
                    f"a token is not sent to {address} in clear: set {CA_VARIABLE}, so that the "
                    "connection is encrypted"
                )
            return kind.insecure_channel(address, options=options)
        if host:
            options = (*options, ("grpc.ssl_target_name_override", host))
        return kind.secure_channel(address, self._channel_credentials(self.tls), options=options)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call shows: the token, if there is one."""
        return ((AUTHORIZATION, BEARER + self.token),) if self.token else ()

    def changed(self) -> bool:
        """A file was replaced since the last channel was made."""
        if self.tls is None or self._made is None:
            return False
        try:
            return self.tls.stamp() != self._made[0]
        except ConfigurationError:
            return False  # it is being replaced

    def _channel_credentials(self, tls: TlsFiles) -> grpc.ChannelCredentials:
        stamp = tls.stamp()
        if self._made is None or self._made[0] != stamp:
            found = tls.read()
            made = grpc.ssl_channel_credentials(found.ca, found.key, found.certificate)
            self._made = (stamp, made)
        return self._made[1]


_chosen: dict[str, str] = {}


def choose(given: Mapping[str, str]) -> None:
    """Set these variables for this process; they take precedence over the environment."""
    _chosen.clear()
    _chosen.update(given)


def credentials_of(environ: Mapping[str, str] | None = None) -> Credentials:
    """What the environment names. ConfigurationError when it contradicts itself, or a token's file
    cannot be read."""
    environ = {**os.environ, **_chosen} if environ is None else environ
    named = [
        Path(environ[variable]) if environ.get(variable) else None
        for variable in (CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE)
    ]
    if any(named) and named[0] is None:
        raise ConfigurationError([f"{CERTIFICATE_VARIABLE} is set and {CA_VARIABLE} is not"])
    token = environ.get(TOKEN_VARIABLE, "")
    if path := environ.get(TOKEN_FILE_VARIABLE):
        token = read_whole(Path(path), LARGEST_TOKEN_BYTES).decode("ascii", "replace").strip()
    return Credentials(TlsFiles(*named) if any(named) else None, checked_token(token))


def checked_token(token: str) -> str:
    """ConfigurationError for what cannot travel as metadata."""
    if not (token.isascii() and token.isprintable() and len(token) <= LARGEST_TOKEN_BYTES):
        raise ConfigurationError(["the token is not one: printable ASCII characters are expected"])
    return token


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return text or str(error) or type(error).__name__


def _no_password() -> str:
    """A key under a password would make a service ask at its terminal."""
    raise ValueError("the key is encrypted: take one without a password")
