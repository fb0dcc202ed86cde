"""A shard of `deploy/kubernetes` in a namespace of its own, and a pod for clients beside it."""

import heapq
import json
import os
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.support.waiting import until

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"
LOAD = Path(__file__).with_name("load.py")
PODS = tuple(f"stratamq-broker-{number}" for number in range(3))
ADDRESSES = ",".join(f"{pod}.stratamq-broker:10911" for pod in PODS)
USER = 10001
TIMEOUT_S = 300
SLOWEST = 3
SIZE = "1Gi"
SPARE_VOLUMES = 2
"""For claims whose volumes are lost."""
ANYWHERE = {"op": "remove", "path": "/spec/template/spec/affinity"}
"""A patch of a StatefulSet: the cluster may have one node."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Of one load: numbers and statuses in the order sent, and how long the slowest ones took,
    from the slowest on."""

    statuses: tuple[tuple[int, str], ...]
    slowest_ms: tuple[int, ...]

    @property
    def longest_ms(self) -> int:
        return self.slowest_ms[0]

    @property
    def confirmed(self) -> set[int]:
        """Numbers that were answered PUT_OK."""
        return {number for number, status in self.statuses if status == "PUT_OK"}

    def __str__(self) -> str:
        counts = Counter(status for _, status in self.statuses)
        return f"{dict(counts)}, the longest appends took {self.slowest_ms} ms"


class Shard:
    """`volumes`: a directory of the node for volumes; None: the cluster has a storage class.
    `shape`: one of the overlays of `deploy/kubernetes`; `patches` are added to ours of it."""

    def __init__(
        self,
        namespace: str,
        image: str,
        place: Path,
        volumes: Path | None,
        shape: str = "shard",
        patches: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.namespace = namespace
        self.image = image
        self.overlay = place
        self._volumes = volumes
        self._shape = shape
        self._patches = patches

    # --- the cluster ---

    def prepare(self) -> None:
        """All that a shard needs, and no shard yet."""
        self.kubectl("create", "namespace", self.namespace, scoped=False)
        label = "pod-security.kubernetes.io/enforce=restricted"
        self.kubectl("label", "namespace", self.namespace, label, scoped=False)
        if self._volumes is not None:
            self.kubectl("apply", "-f", "-", given=json.dumps(self._volume_list()))
        self.kubectl("apply", "-f", "-", given=json.dumps(pod_of(self.image, "client")))

    def apply(self) -> None:
        """By the overlay, after `prepare`."""
        shutil.copytree(MANIFESTS, self.overlay / "manifests")
        self.ask_for_pods("1")
        self.kubectl("apply", "--server-side", "-k", str(self.overlay))
        self.until_ready()

    def delete(self) -> None:
        self.kubectl("delete", "namespace", self.namespace, "--wait=false", scoped=False)

    def until_ready(self) -> None:
        timeout = f"--timeout={TIMEOUT_S}s"
        try:
            self.kubectl("rollout", "status", "statefulset", "stratamq-broker", timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}{self._unready()}") from None
        self.kubectl("wait", "--for=condition=Ready", "pod/client", timeout)

    def _unready(self) -> str:
        """The last lines of all containers that are not ready, also from before a restart."""
        found = [self.kubectl("get", "pods")]
        for pod in json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]:
            for row in pod["status"].get("containerStatuses", ()):
                words = ("logs", pod["metadata"]["name"], "-c", row["name"], "--tail=20")
                if not row["ready"]:
                    found.append(f"{row}\n{self.kubectl(*words)}")
                    if row["restartCount"]:
                        found.append(self.kubectl(*words, "--previous"))
        return "\n".join(found)

    def kubectl(self, *words: str, scoped: bool = True, given: str | None = None) -> str:
        scope = ("--namespace", self.namespace) if scoped else ()
        done = subprocess.run(
            ["kubectl", *scope, *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S + 30,
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout

    def in_pod(self, pod: str, container: str, *words: str) -> str:
        return self.kubectl("exec", pod, "-c", container, "--", *words)

    def client(self, *words: str) -> str:
        """A command of `stratamq`, from a client's pod."""
        return self.in_pod("client", "client", "stratamq", *words, "--address", ADDRESSES)

    # --- the shard ---

    def leader(self) -> str:
        """The member that leads."""
        return until(self._leader, "a member leads")

    def _leader(self) -> str:
        """As an agent knows it; "": none, as far as one answers."""
        for pod in PODS:
            try:
                text = self.in_pod(
                    pod, "agent", "stratamq", "cluster", "status", "--output", "json"
                )
            except AssertionError:
                continue
            rows = [json.loads(line) for line in text.splitlines()]
            leaders = [row["member"] for row in rows if row.get("leads")]
            if leaders:
                return str(leaders[0])
        return ""

    @contextmanager
    def leaders(self) -> Iterator[list[str]]:
        """Those that lead meanwhile, one after the other, from the one that does now; complete at
        the end."""
        found: list[str] = []
        place = self.overlay / "holders"
        holder = 'jsonpath={.spec.holderIdentity}{"\\n"}'
        words = ["get", "lease", "stratamq-stratamq", "--watch", "-o", holder]
        with place.open("w") as file:
            watch = subprocess.Popen(
                ["kubectl", "--namespace", self.namespace, *words], stdout=file
            )
        try:
            until(place.read_text, "the Lease is watched")
            yield found
            last = self.leader()
            until(lambda: place.read_text().split()[-1] == last, "the Lease has the leader")
            found += [one for one, _ in groupby(place.read_text().split())]
        finally:
            watch.kill()
            watch.wait()

    def masters(self) -> set[str]:
        """Pods that the Service for clients selects."""
        rows = json.loads(self.kubectl("get", "pods", "-l", "stratamq-role=master", "-o", "json"))
        return {row["metadata"]["name"] for row in rows["items"]}

    def switch_over(self, to: str) -> None:
        """`to` leads, once it has what the leader has."""
        if self.leader() != to:
            until(lambda: self._switched_over(to), f"{to} may lead", deadline_s=180)
        assert self.leader() == to

    def _switched_over(self, to: str) -> bool:
        try:
            self.in_pod(to, "agent", "stratamq", "cluster", "switchover", "--to", to)
        except AssertionError:
            return False
        return True

    @contextmanager
    def load(self, topic: str, seconds: int, first: int = 0) -> Iterator["Load"]:
        """A producer beside what is done to the shard meanwhile; ended at the end."""
        load = Load(self, topic, seconds, first)
        try:
            yield load
            load.wait()
        finally:
            load.kill()

    def stored(self, topic: str) -> list[int]:
        """The numbers of a load that consumers read, in order."""
        return sorted(int(line) for line in self.client("consume", topic, "-f", "%s\\n").split())

    def lose_volume(self, pod: str) -> None:
        """With its pod, while the broker runs. The claim gets another volume, which is empty."""
        self.kubectl("delete", "pvc", f"data-{pod}", "--wait=false")
        self.kubectl("delete", "pod", pod, "--force", "--grace-period=0", "--wait=false")

    def volume(self, pod: str) -> str:
        """The name of the one that its claim has."""
        words = ("get", "pvc", f"data-{pod}", "-o", "jsonpath={.spec.volumeName}")
        return self.kubectl(*words)

    def back_up(self, pod: str) -> Path:
        """A copy of what the running broker has, the log last."""
        backup = self.overlay / f"{pod}.tar"
        rest = ("--exclude=./commitlog", "--exclude=./stratamq/run", "--exclude=./lost+found", ".")
        for place, what in ((backup, rest), (backup.with_suffix(".log"), ("./commitlog",))):
            tar = ("tar", "-C", "/data", "--warning=no-file-changed", "-cSf", "-", *what)
            words = ["kubectl", "--namespace", self.namespace, "exec", pod, "-c", "commitlog", "--"]
            with place.open("wb") as file:
                done = subprocess.run([*words, *tar], stdout=file, timeout=TIMEOUT_S)
            # 1: a file changed meanwhile.
            assert done.returncode in (0, 1)
        return backup

    def put_back(self, pod: str, backup: Path, *, marked: bool) -> None:
        """The volume of a pod that is not there becomes the backup."""
        self.kubectl("apply", "-f", "-", given=json.dumps(_keeper_pod(self.image, f"data-{pod}")))
        self.kubectl("wait", "--for=condition=Ready", "pod/keeper", f"--timeout={TIMEOUT_S}s")
        self.in_pod("keeper", "client", "sh", "-c", "rm -rf /data/* /data/.[!.]*")
        for place in (backup, backup.with_suffix(".log")):
            words = ["exec", "-i", "keeper", "--", "tar", "-C", "/data", "-xSf", "-"]
            with place.open("rb") as file:
                command = ["kubectl", "--namespace", self.namespace, *words]
                subprocess.run(command, stdin=file, check=True, timeout=TIMEOUT_S)
        if marked:
            self.in_pod("keeper", "client", "stratamq", "replica", "restored", "--data", "/data")
        self.kubectl("delete", "pod", "keeper", "--wait")

    @contextmanager
    def scaled_to(self, members: int) -> Iterator[None]:
        """The last ones are away meanwhile; their volumes are not."""
        self._scale(members)
        for pod in PODS[members:]:
            self.kubectl("wait", "--for=delete", f"pod/{pod}", f"--timeout={TIMEOUT_S}s")
        yield
        self._scale(len(PODS))

    def _scale(self, members: int) -> None:
        self.kubectl("scale", "statefulset", "stratamq-broker", f"--replicas={members}")

    # --- the node ---

    @property
    def has_node(self) -> bool:
        """The tests see the node's processes and its network."""
        return self._volumes is not None

    def uid(self, pod: str) -> str:
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}")

    # --- manifests ---

    @property
    def storage_class(self) -> str:
        """ "": the cluster's default class."""
        return self.namespace if self.has_node else ""

    def ask_for_pods(self, version: str) -> None:
        """The overlay asks for pods that have this annotation: to apply it rolls others."""
        patches: list[dict[str, Any]] = [
            ANYWHERE,
            {"op": "add", "path": "/spec/template/metadata/annotations",
             "value": {"stratamq-test-version": version}},
            *(
                {
                    "op": "replace",
                    "path": f"/spec/template/spec/containers/{number}/resources/requests/cpu",
                    "value": "10m",
                }
                for number in range(6)
            ),
            {
                "op": "replace",
                "path": "/spec/volumeClaimTemplates/0/spec/resources/requests/storage",
                "value": SIZE,
            },
        ]  # fmt: skip
        if self.storage_class:
            place = "/spec/volumeClaimTemplates/0/spec/storageClassName"
            patches.append({"op": "add", "path": place, "value": self.storage_class})
        name, _, tag = self.image.rpartition(":")
        overlay = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": self.namespace,
            "resources": [f"manifests/{self._shape}"],
            "images": [{"name": "stratamq", "newName": name, "newTag": tag}],
            "patches": [
                {"target": {"kind": "StatefulSet"}, "patch": json.dumps(patches)},
                *self._patches,
            ],
        }
        (self.overlay / "kustomization.yaml").write_text(json.dumps(overlay))

    def _volume_list(self) -> dict[str, Any]:
        assert self._volumes is not None
        items: list[dict[str, Any]] = [
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": self.namespace},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        ]
        for number in range(len(PODS) + SPARE_VOLUMES):
            path = self._volumes / f"{self.namespace}-{number}"
            path.mkdir()
            os.chown(path, USER, USER)
            items.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": path.name},
                    "spec": {
                        "capacity": {"storage": SIZE},
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": self.namespace,
                        "persistentVolumeReclaimPolicy": "Retain",
                        "hostPath": {"path": str(path)},
                    },
                }
            )
        return {"apiVersion": "v1", "kind": "List", "items": items}


class Load:
    """`load.py` in the client's pod. `begun` once something was acknowledged."""

    def __init__(self, shard: Shard, topic: str, seconds: int, first: int) -> None:
        self.begun = threading.Event()
        self._rows: list[tuple[int, int, str]] = []
        self._process = subprocess.Popen(
            [
                *("kubectl", "--namespace", shard.namespace, "exec", "-i", "client", "--"),
                *("python3", "-c", LOAD.read_text(encoding="utf-8")),
                *(ADDRESSES, topic, str(seconds), str(first)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._other: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def acknowledged(self) -> Acknowledged:
        statuses = tuple((number, status) for number, _, status in self._rows)
        slowest = heapq.nlargest(SLOWEST, (ms for _, ms, _ in self._rows))
        return Acknowledged(statuses, tuple(slowest))

    def finish(self) -> None:
        """It ends after the message that it waits for."""
        assert self._process.poll() is None, "it has ended already"
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> None:
        """Until it has ended by itself, and nothing was refused."""
        self._process.wait(TIMEOUT_S)
        self._reader.join()
        assert self._process.returncode == 0, "".join(self._other)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            if len(words) == 3 and words[0].isdigit() and words[1].isdigit():
                self._rows.append((int(words[0]), int(words[1]), words[2]))
                self.begun.set()
            else:
                self._other.append(line)


def _keeper_pod(image: str, claim: str) -> dict[str, Any]:
    """One that has a broker's volume while the broker is away."""
    pod = pod_of(image, "keeper")
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return pod


def pod_of(image: str, name: str) -> dict[str, Any]:
    """One that waits for commands, in its container `client`."""
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {f"stratamq-{name}": "true"}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "client",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "infinity"],
                    "securityContext": restricted,
                }
            ],
        },
    }
