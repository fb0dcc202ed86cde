"""A gRPC server that offers nothing, for attackers to attack beside the broker: what is waited then
is for the processors that they and it take.

    python -m stratamq_bench.bare_server --certificate FILE --key FILE

It prints its address, and ends with its standard input.
"""

import argparse
import asyncio
import sys
from pathlib import Path

import grpc

HOST = "127.0.0.1"


async def serve(certificate: Path, key: Path) -> None:
    """Until standard input ends."""
    server = grpc.aio.server()
    pair = key.read_bytes(), certificate.read_bytes()
    port = server.add_secure_port(f"{HOST}:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    print(f"{HOST}:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--certificate", required=True, type=Path, help="a PEM file")
    parser.add_argument("--key", required=True, type=Path, help="a PEM file")
    options = parser.parse_args()
    asyncio.run(serve(options.certificate, options.key))


if __name__ == "__main__":
    main()
