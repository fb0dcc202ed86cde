#!/usr/bin/env bash
# Succeed if the programs are here that `make test` needs beside Python's packages. Where some are missing:
# as root on Debian install them, otherwise say what is missing and how to get it. Tests that need a program
# which is not here are skipped, with the reason. No daemon of these packages is started.
set -euo pipefail
cd "$(dirname "$0")"

# program:package. tests/test_test_tools.py holds that no test looks for another one.
TOOLS=(
  fusermount3:fuse3        # power losses: a file system that forgets
  strace:strace            # system calls that fail; the order of writes
  mkfs.ext4:e2fsprogs e2fsck:e2fsprogs mount:mount umount:mount  # volumes that are full or broken
  ip:iproute2 unshare:util-linux nsenter:util-linux  # networks that are cut
  nft:nftables             # the firewall of docs/security.md
  etcd:etcd-server         # the agents' election store
  prometheus:prometheus promtool:prometheus  # alert rules and dashboards
  h2load:nghttp2-client    # the load of `stratamq bench gateway`
  chromium:chromium        # the console in a real browser (tests/console/browser)
)

missing=()
packages=()
for tool in "${TOOLS[@]}"; do
  if ! command -v "${tool%%:*}" >/dev/null; then
    missing+=("${tool%%:*}")
    packages+=("${tool##*:}")
  fi
done
if [ "${#missing[@]}" -eq 0 ]; then
  exit
fi
echo "some tests need programs that are not here: ${missing[*]}" >&2
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "they are skipped without; on Debian: sudo apt-get install --no-install-recommends ${packages[*]}" >&2
  exit 1
fi
./install_packages.sh "${packages[@]}"
