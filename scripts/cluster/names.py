"""Names of a cluster's Services for dnsmasq: names.py HOSTS PID, written once a second."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any


def listed(kind: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        ["kubectl", "get", kind, "-A", "-o", "json"], capture_output=True, check=True
    )
    items: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return items


def lines() -> Iterator[str]:
    """`ADDRESS NAME` of every Service, and of every pod behind one without an address."""
    headless: dict[tuple[str, str], bool] = {}
    for service in listed("services"):
        place, spec = service["metadata"], service["spec"]
        name = place["namespace"], place["name"]
        if spec.get("clusterIP") == "None":
            headless[name] = spec.get("publishNotReadyAddresses", False)
        elif spec.get("clusterIP"):
            yield f"{spec['clusterIP']} {name[1]}.{name[0]}.svc.cluster.local"
    for part in listed("endpointslices"):
        place = part["metadata"]
        name = place["namespace"], place.get("labels", {}).get("kubernetes.io/service-name")
        if name not in headless:
            continue
        zone = f"{name[1]}.{name[0]}.svc.cluster.local"
        for endpoint in part.get("endpoints") or []:
            if endpoint["conditions"].get("ready", True) or headless[name]:
                for address in endpoint["addresses"]:
                    yield f"{address} {zone}"
                    if endpoint.get("hostname"):
                        yield f"{address} {endpoint['hostname']}.{zone}"


def main(path: str, pid: int) -> None:
    written = ""
    while True:
        try:
            text = "\n".join(sorted(lines())) + "\n"
        except subprocess.CalledProcessError as error:
            print(error.stderr, file=sys.stderr)
        else:
            if text != written:
                with open(path, "w", encoding="ascii") as file:
                    file.write(text)
                os.kill(pid, signal.SIGHUP)
                written = text
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
