"""Whether the services of this container take requests: exit code 0, or 1 and the reason in a line.

Asks the metrics endpoint of each for one gauge, by a plain socket: a check that imports gRPC costs
a busy machine more than the service that it asks. Which services are here is in the command line of
the container's first process: `python3 -m stratamq_index` is one, `stratamq up` is every service to
which the environment gives a metrics address; gateway, tier, agent and console only where the
environment or the command line gives them one of their settings.
"""

import os
import re
import socket
import sys
from collections.abc import Mapping

IF_SET = {
    "gateway": ("remoting_address", "grpc_address"),
    "tier": ("target",),
    "agent": ("store",),
    "console": ("http_address",),
}
"""The names of the register of services, `rpc/rooms.py`, which is not imported: see above."""
VARIABLE = "STRATAMQ_{}_METRICS_ADDRESS"
VARIABLES = re.compile(VARIABLE.format("([A-Z]+)"))
ANSWER_S = 15.0
REQUEST = b"GET /metrics?name[]=service_ready HTTP/1.0\r\nHost: localhost\r\n\r\n"
READY = re.compile(rb"^service_ready 1(\.0)?$", re.MULTILINE)


def services_in(command: bytes, environ: Mapping[str, str]) -> list[str]:
    """The services that a command line, as `/proc` shows it, starts; all when it names none."""
    named = [name.decode() for name in re.findall(rb"\0-m\0stratamq_([a-z]+)\b", command)]
    known = [match[1].lower() for name in environ if (match := VARIABLES.fullmatch(name))]
    return named or [name for name in known if is_started(name, command, environ)]


def is_started(service: str, command: bytes, environ: Mapping[str, str]) -> bool:
    """Whether `stratamq up` starts it, by the command line and the environment."""
    settings = IF_SET.get(service)
    if settings is None:
        return True
    return any(
        environ.get(f"STRATAMQ_{service.upper()}_{one.upper()}")
        or f"\0{service}.{one}=".encode() in command
        for one in settings
    )


def fault(service: str, environ: Mapping[str, str]) -> str | None:
    """Why the service takes no requests, None if it does."""
    variable = VARIABLE.format(service.upper())
    host, _, port = environ.get(variable, "").rpartition(":")
    if not port:
        return f"{variable} is empty: a health check needs it"
    try:
        answer = _ask("127.0.0.1" if host in ("0.0.0.0", "[::]") else host.strip("[]"), int(port))
    except (OSError, ValueError) as error:
        return f"{service} does not answer: {error}"
    return None if READY.search(answer) else f"{service} is not ready"


def _ask(host: str, port: int) -> bytes:
    with socket.create_connection((host, port), timeout=ANSWER_S) as connection:
        connection.sendall(REQUEST)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts)


def main() -> int:
    with open("/proc/1/cmdline", "rb") as file:
        command = file.read()
    services = services_in(command, os.environ)
    faults = [text for service in services if (text := fault(service, os.environ))]
    if not services:
        faults = [f"no {VARIABLE.format('…')} is set: a health check needs them"]
    print("; ".join(faults) or "ready")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
