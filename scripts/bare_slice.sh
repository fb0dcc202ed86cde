#!/usr/bin/env bash
# What scripts/bare_root.sh runs in CI: lint, a new user's first hour, the demo, and tests of every room, half of them as root,
# the other half as an ordinary user. The main run has all of them on the same Python; what differs
# here is what else is installed, and who runs them.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -eq 0 ]; then
  make lint
  make test-all ARGS="tests/files tests/commitlog/test_recovery_fixtures.py \
    tests/commitlog/test_real_files.py tests/commitlog/test_servicer.py \
    tests/dispatcher/test_process.py tests/index/test_service.py"
else
  scripts/first_hour.py
  make demo
  make test-all ARGS="tests/ha/test_pair.py tests/janitor/test_service.py tests/pipeline/test_options.py \
    tests/service tests/rpc tests/client/test_send.py tests/cli/test_up.py tests/test_tidy.py"
fi
