#!/usr/bin/env bash
# Run a command with a container engine: with_engine.sh COMMAND…, or --look: can there be one?
#
# An engine that answers is used as it is. Where there is none, root on Debian gets one for as long as
# the command runs: Debian's packages, in a network namespace of its own, so that nothing of it stays
# behind on the machine; everything under one directory, removed at the end. Such an engine reaches no
# registry: its base images are made of this machine's packages, the wheels are built outside.
#
# The command finds: `docker` on the engine; COMPOSE, `docker compose` or `docker-compose`;
# STRATAMQ_TEST_WHEELS, a directory of wheels when containers have no way out; with STRATAMQ_TEST_SPARK=yes also
# STRATAMQ_TEST_SPARK_WHEELS, those of deploy/spark/Dockerfile, whose base image is there then.
#
# Exit code 75: the command failed, and an engine of our own no longer answers.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BASE=python:3.11-slim
readonly ETCD_BASE=debian:12-slim
readonly CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/stratamq"
readonly GONE=75
readonly COMPILER=(gcc libc6-dev libpython3-dev)
readonly PACKAGES=(docker.io iptables docker-compose python3 etcd-server etcd-client "${COMPILER[@]}")

no() {
  echo "no container engine: $*" >&2
  exit 1
}

answers() { docker version >/dev/null 2>&1; }

is_debian_root() { [ "$(id -u)" -eq 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null; }

# Whether this machine lets us make one, and why not. Debian's Python must be the image's.
may_make() {
  is_debian_root || no "none answers, and only root on Debian can be given one. Start Docker"
  unshare --net true 2>/dev/null || no "none answers, and network namespaces cannot be made here"
  [ "$(. /etc/os-release && echo "${VERSION_ID:-}")" = 12 ] ||
    no "none answers, and one of our own needs Debian 12, whose Python is the image's"
}

# COMPOSE as the caller says; else v2, also one that scripts/build_compose.sh has built; else 1.29.
find_compose() {
  if [ -n "${COMPOSE:-}" ]; then return; fi
  if ! docker compose version >/dev/null 2>&1 && [ -x "$CACHE/docker/cli-plugins/docker-compose" ]; then
    export DOCKER_CONFIG="$CACHE/docker"
  fi
  if docker compose version >/dev/null 2>&1; then
    COMPOSE="docker compose"
  elif command -v docker-compose >/dev/null; then
    COMPOSE=docker-compose
  else
    no "the engine is here, but neither 'docker compose' nor docker-compose is"
  fi
}

start_engine() {
  mkdir -p "$CACHE"
  lab=$(mktemp -d "$CACHE/engine.XXXXXX")
  namespace="stratamq-${lab##*.}"
  export DOCKER_HOST="unix://$lab/docker.sock"
  trap stop_engine EXIT
  ip netns add "$namespace"
  nsenter --net="/run/netns/$namespace" ip link set lo up
  # nsenter, not `ip netns exec`: that one mounts a new /sys and hides the control groups.
  nsenter --net="/run/netns/$namespace" setsid dockerd --data-root "$lab/data" --exec-root "$lab/exec" \
    --pidfile "$lab/dockerd.pid" -H "$DOCKER_HOST" >"$lab/log" 2>&1 </dev/null &
  engine=$!
  local tries
  for tries in $(seq 300); do
    if answers; then return; fi
    kill -0 "$engine" 2>/dev/null || break
    sleep 0.2
  done
  tail -20 "$lab/log" >&2
  no "Debian's did not start"
}

stop_engine() {
  timeout 60 docker ps -q 2>/dev/null | xargs -r timeout 120 docker kill >/dev/null 2>&1 || true
  local process
  for process in ${wheels:-} ${engine:-}; do
    kill "$process" 2>/dev/null || true
    timeout 60 tail --pid "$process" -f /dev/null || kill -KILL "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  ip netns del "$namespace" 2>/dev/null || true
  rm -rf "$lab"
}

prepare_engine() {
  .venv/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    no "one of our own is here, and .venv is not of Python 3.11: its wheels do not fit the image"
  mkdir "$lab/wheels"
  .venv/bin/python -m pip wheel --quiet --disable-pip-version-check \
    --wheel-dir "$lab/wheels" hatchling ".[tier,kubernetes,otlp,gateway,console]" >&2 &
  wheels=$!
  scripts/base_image.sh "$BASE" "$lab" "${COMPILER[@]}" >&2
  scripts/package_image.sh "$ETCD_BASE" "$lab/etcd" etcd-server etcd-client bash dash coreutils grep >&2
  wait "$wheels"
  wheels=
  export STRATAMQ_TEST_WHEELS="$lab/wheels"
  if [ "${STRATAMQ_TEST_SPARK:-}" = yes ]; then
    scripts/spark_base.sh "$lab/spark" "${COMPILER[@]}" >&2
    export STRATAMQ_TEST_SPARK_WHEELS="$lab/spark/wheels"
  fi
}

if [ "${1:-}" = --look ]; then
  if answers; then find_compose; else may_make; fi
  exit
fi
if answers; then
  find_compose
  export COMPOSE
  exec "$@"
fi
may_make
scripts/install_packages.sh "${PACKAGES[@]}"
start_engine
prepare_engine
find_compose
export COMPOSE
export COMPOSE_HTTP_TIMEOUT=300
code=0
nsenter --net="/run/netns/$namespace" "$@" || code=$?
if [ "$code" -ne 0 ] && ! timeout 60 docker version >/dev/null; then
  echo "the container engine has stopped answering; it wrote:" >&2
  tail -20 "$lab/log" >&2
  code=$GONE
fi
exit "$code"
