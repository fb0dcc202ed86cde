"""The certificates of a broker's services: the settings `[tls]`, and what listens by them.

All services of a broker, and its clients, use the same names: `STRATAMQ_TLS_CERTIFICATE` and the
others of `rpc.credentials`. Files that were replaced are used from the next connection on; if the
new ones do not fit together, the old ones are kept and an error is logged.
"""

import dataclasses
import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from stratamq.errors import ConfigurationError
from stratamq.rpc.credentials import Credentials, Stamp, TlsBytes, TlsFiles
from stratamq.service.config import setting

log = logging.getLogger(__name__)

SECTION = "tls"
HANDSHAKE = b"\x16"
"""The first byte of a connection that begins with a TLS handshake."""
HANDSHAKE_S = 5.0
MEMBER = "stratamq-broker"
"""The name in the certificates of brokers that `stratamq tls init` makes."""


@dataclasses.dataclass(frozen=True)
class TlsConfig:
    """TLS settings, the same for every service of a broker."""

    certificate: Path | None = setting(
        None,
        unit="path",
        doc="PEM file with the broker's certificate and chain; empty: listeners use plaintext.",
    )
    key: Path | None = setting(
        None, unit="path", doc="PEM file with the private key, not encrypted."
    )
    ca: Path | None = setting(
        None,
        unit="path",
        doc="PEM file with the authorities that sign the certificates of other brokers and of "
        "clients.",
    )
    require_client_certificates: bool = setting(
        False, unit="", doc="Refuse clients without a certificate of `ca`."
    )
    members: tuple[str, ...] = setting(
        (MEMBER,),
        unit="",
        doc="Common names in the certificates of the cluster's brokers, agents and services on "
        "other machines, including this broker's: they may replicate, and have all "
        "permissions.",
    )

    def faults(self) -> list[str]:
        if (self.certificate is None) is not (self.key is None):
            return ["certificate and key belong together: set both"]
        if self.certificate is not None and self.ca is None:
            return ["ca must be set with certificate: by it other services are trusted"]
        return []

    @property
    def files(self) -> TlsFiles | None:
        """None: in clear."""
        return TlsFiles(self.ca, self.certificate, self.key) if self.certificate else None

    def credentials(self) -> Credentials:
        """Return the credentials with which the service calls others."""
        return Credentials(self.files)


class ContextKind(NamedTuple):
    """`required`: a peer without a certificate of `ca` is refused. `alpn`: what is spoken within,
    the best first."""

    protocol: int
    required: bool
    alpn: tuple[str, ...] = ()


Contexts = Callable[[], ssl.SSLContext]
"""The context for the next connection: of the files as they are now."""


class ServerTls:
    """What listens with a broker's certificate. `files` are read at once: ConfigurationError.
    Thread-safe: gRPC and the metrics ask from threads of their own."""

    def __init__(self, files: TlsFiles, *, require_client_certificates: bool = False) -> None:
        self._files = files
        self.requires_client_certificates = require_client_certificates
        self._lock = threading.Lock()
        self._stamp: Stamp = files.stamp()
        self._bytes = files.read()
        self._problem = ""
        """Why the files are not used, if they are not."""
        self._contexts: dict[ContextKind, ssl.SSLContext] = {}

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """For `add_secure_port`."""
        given = self._bytes

        def fetched() -> Any:
            """gRPC asks before each handshake; None: nothing has changed since it was told."""
            nonlocal given
            found = self._refreshed()
            if found is given:
                return None
            given = found
            return _configuration(found)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(given),
            fetched,
            require_client_authentication=self.requires_client_certificates,
        )

    def contexts(
        self, *, require_client_certificates: bool, alpn: tuple[str, ...] = ()
    ) -> Contexts:
        """For a listening socket: asked for its context at each connection."""
        required = require_client_certificates or self.requires_client_certificates
        return self._each(ContextKind(ssl.PROTOCOL_TLS_SERVER, required, alpn))

    def client_contexts(self) -> Contexts:
        """For connections to other brokers, with this one's certificate."""
        return self._each(ContextKind(ssl.PROTOCOL_TLS_CLIENT, True))

    def _each(self, kind: ContextKind) -> Contexts:
        self._contexts[kind] = self._made(kind)

        def current() -> ssl.SSLContext:
            self._refreshed()
            return self._contexts[kind]

        return current

    def _made(self, kind: ContextKind) -> ssl.SSLContext:
        """A new one each time: an authority is never taken out of a context again."""
        context = ssl.SSLContext(kind.protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._files.certificate or "", self._files.key)
        if self._files.ca is not None:
            context.load_verify_locations(self._files.ca)
            context.verify_mode = ssl.CERT_REQUIRED if kind.required else ssl.CERT_OPTIONAL
        if kind.alpn:
            context.set_alpn_protocols(list(kind.alpn))
        return context

    def _refreshed(self) -> TlsBytes:
        """Return the files' contents, or the last ones in which certificate and key matched. Each
        listener checks for changes itself."""
        with self._lock:
            try:
                stamp = self._files.stamp()
                if stamp == self._stamp:
                    return self._bytes
                self._stamp = stamp
                found = self._files.read()
                contexts = {kind: self._made(kind) for kind in self._contexts}
            except (ConfigurationError, OSError) as error:
                if str(error) != self._problem:  # once, and not for each connection
                    self._problem = str(error)
                    reason = {"reason": self._problem}
                    log.error("new TLS files rejected, the previous ones stay in use", extra=reason)
                return self._bytes
            self._bytes, self._contexts, self._problem = found, contexts, ""
        log.info("TLS files reloaded", extra={"certificate": str(self._files.certificate)})
        return found


def _configuration(found: TlsBytes) -> Any:
    pair = (found.key or b"", found.certificate or b"")
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=found.ca)


def server_tls(config: TlsConfig) -> ServerTls | None:
    """None: listeners are in clear. ConfigurationError."""
    requires = config.require_client_certificates
    return config.files and ServerTls(config.files, require_client_certificates=requires)
