#!/usr/bin/env bash
# Run a command with a Kubernetes: with_cluster.sh COMMAND…, or --look: can there be one?
#
# Where KUBECONFIG and STRATAMQ_TEST_IMAGE, an image of deploy/Dockerfile that its nodes have, name a cluster it is used
# as it is. Else root on Debian gets one of a single node for as long as the command runs, from the binaries that
# scripts/cluster/build.sh has built, in namespaces of its own; its image is built with scripts/with_engine.sh.
#
# The command finds KUBECONFIG, `kubectl`, STRATAMQ_TEST_IMAGE; of a cluster of our own STRATAMQ_TEST_VOLUMES, a directory
# of the node for volumes, with STRATAMQ_TEST_SPARK=yes STRATAMQ_TEST_SPARK_IMAGE, and it sees the node's processes and
# network.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BINARIES="${STRATAMQ_CLUSTER:-${XDG_CACHE_HOME:-$HOME/.cache}/stratamq/cluster}"
readonly IMAGE=stratamq:test SPARK_IMAGE=stratamq-spark:test
readonly PACKAGES=(containerd containernetworking-plugins dnsmasq-base iptables openssl curl)

no() {
  echo "no Kubernetes: $*" >&2
  exit 1
}

may_make() {
  [ "$(id -u)" -eq 0 ] && [ -e /etc/debian_version ] ||
    no "KUBECONFIG and STRATAMQ_TEST_IMAGE name none, and only root on Debian can be given one"
  [ -x "$BINARIES/minik8s" ] && [ -x "$BINARIES/pause" ] ||
    no "KUBECONFIG and STRATAMQ_TEST_IMAGE name none, and scripts/cluster/build.sh $BINARIES has built none"
}

if [ -n "${KUBECONFIG:-}" ] && [ -n "${STRATAMQ_TEST_IMAGE:-}" ]; then
  [ "${1:-}" = --look ] || exec "$@"
  exit
fi
may_make
if [ "${1:-}" = --look ]; then
  scripts/with_engine.sh --look
  exit
fi

stop() {
  # The first process of the namespaces: all of the cluster ends with it.
  if [ -n "${node:-}" ]; then
    pgrep -P "$node" | xargs -r kill -9 2>/dev/null || true
    wait "$node" 2>/dev/null || true
  fi
  find /sys/fs/cgroup/*/kubepods -depth -type d -exec rmdir {} + 2>/dev/null || true
  rm -rf "$lab"
}

scripts/install_packages.sh "${PACKAGES[@]}"
lab=$(mktemp -d "$BINARIES/lab.XXXXXX")
trap stop EXIT
ln -s "$BINARIES/minik8s" "$lab/minik8s"
export DOCKER_BUILDKIT=0
scripts/with_engine.sh bash -euc "
  tar --create --directory '$BINARIES' pause | docker import --change 'ENTRYPOINT [\"/pause\"]' - local/pause:1 >/dev/null
  scripts/save_image.sh $IMAGE '$lab/image.tar' deploy/Dockerfile \"\${STRATAMQ_TEST_WHEELS:-}\"
  if [ '${STRATAMQ_TEST_SPARK:-}' = yes ]; then
    scripts/save_image.sh $SPARK_IMAGE '$lab/spark.tar' deploy/spark/Dockerfile \"\${STRATAMQ_TEST_SPARK_WHEELS:-}\"
    spark=$SPARK_IMAGE
  fi
  docker save local/pause:1 $IMAGE \${spark:-} --output '$lab/images.tar'"
unshare --net --mount --pid --fork --mount-proc --kill-child bash scripts/cluster/node.sh "$lab" >"$lab/node.log" 2>&1 &
node=$!
for _ in $(seq 300); do
  [ -e "$lab/state/ready" ] && break
  kill -0 "$node" 2>/dev/null || break
  sleep 0.5
done
[ -e "$lab/state/ready" ] || { tail -20 "$lab/node.log" >&2; no "it did not start"; }
mkdir "$lab/volumes"
if [ "${STRATAMQ_TEST_SPARK:-}" = yes ]; then
  export STRATAMQ_TEST_SPARK_IMAGE="docker.io/library/$SPARK_IMAGE"
fi
nsenter --target "$(pgrep -P "$node")" --net --mount --pid --wdns="$PWD" env PATH="$lab/state/bin:$PATH" \
  KUBECONFIG="$lab/state/kubeconfig" STRATAMQ_TEST_IMAGE="docker.io/library/$IMAGE" \
  STRATAMQ_TEST_VOLUMES="$lab/volumes" "$@"
