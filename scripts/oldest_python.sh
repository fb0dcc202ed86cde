#!/usr/bin/env bash
# Print the oldest Python 3.11 or newer of this machine: what runs there runs on what README.md names,
# Debian 12's 3.11.2. Says on standard error when the oldest one here is newer than that.
set -euo pipefail

readonly WANTED=3.11.2

# Version and path of each interpreter that is new enough.
interpreters() {
  local candidate
  for candidate in $(type -ap python3.11 python3.12 python3.13 python3 || true) /usr/bin/python3; do
    "$candidate" -c 'import sys
if sys.version_info >= (3, 11):
    print("%d.%d.%d" % sys.version_info[:3], sys.executable)' 2>/dev/null || true
  done
}

read -r version path < <(interpreters | sort --version-sort | head -1) || true
if [ -z "${path:-}" ]; then
  echo "Python 3.11 or newer is needed (apt-get install python3)" >&2
  exit 1
fi
if [ "$version" != "$WANTED" ]; then
  echo "README.md names Debian 12, whose Python is $WANTED; the oldest one here is $version, $path" >&2
fi
echo "$path"
