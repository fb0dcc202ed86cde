#!/usr/bin/env bash
# Succeed if FUSE's fusermount3 is here, which `stratamq torture power` and its tests need. Where it is
# not: as root on Debian install it, otherwise say how.
set -euo pipefail

if command -v fusermount3 >/dev/null; then
  exit
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "the tests of power losses need fusermount3; run: sudo apt-get install fuse3" >&2
  exit 1
fi
echo "the tests of power losses need fusermount3: installing fuse3" >&2
apt-get update -qq >&2
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends fuse3 >&2
