#!/usr/bin/env bash
# What scripts/bare_root.sh runs in CI: lint, the demo, and the test folders of every room, the half of
# them as root, the other half as an ordinary user.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -eq 0 ]; then
  make lint
  make test ARGS="tests/commitlog tests/dispatcher tests/files"
else
  make demo
  make test ARGS="tests/ha tests/index tests/janitor tests/pipeline tests/runtime tests/client tests/cli"
fi
