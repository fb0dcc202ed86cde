#!/usr/bin/env bash
# bare_root.sh COMMAND…: run it in a copy of this tree on a Debian 12 that has nothing but python3,
# python3-venv, make and ca-certificates: first as root, then as an ordinary user. /tmp is a tmpfs.
#
# Needs root on Debian. The root file system is made with mmdebstrap from the package sources of this
# machine, in mount and process namespaces of its own; it is removed at the end. What this machine
# needs to reach its package sources and its Python index (proxies, certificates, apt's and pip's
# configuration) is copied into it. `--look`: succeed if one can be made here, else say why not.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly INCLUDED=python3,python3-venv,make,ca-certificates
readonly PLACE=/home/tester/stratamq
readonly CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/stratamq"
# Variables that say how to reach a package index. A file or directory that one names is copied.
readonly PASSED='^(PIP_[A-Z_]*|[A-Za-z]*_proxy|[A-Z]*_PROXY|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE)$'

no() {
  echo "no bare root: $*" >&2
  exit 1
}

may_make() {
  { [ "$(id -u)" -eq 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null; } ||
    no "only root on Debian can make one"
  [ "$(. /etc/os-release && echo "${VERSION_ID:-}")" = 12 ] || no "this machine is not Debian 12"
  unshare --mount --pid --fork true 2>/dev/null || no "namespaces cannot be made here"
}

# Lines of sources.list: where this machine has Debian's own packages from.
sources() {
  # shellcheck disable=SC2016
  apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' 'Origin: Debian' | sort -u
}

make_root() {
  if ! command -v mmdebstrap >/dev/null; then
    echo "bare_root: installing mmdebstrap" >&2
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends mmdebstrap >&2
  fi
  [ -n "$(sources)" ] || apt-get update -qq >&2
  apt-config dump | grep '^Acquire::' | grep -v 'IndexTargets' >"$lab/apt.conf" || true
  sources >"$lab/sources.list"
  mmdebstrap --quiet --mode=root --variant=minbase --format=directory --include="$INCLUDED" \
    --aptopt="$lab/apt.conf" bookworm "$root" "$lab/sources.list"
}

# How this machine reaches the Python index: certificates, names, pip's files and variables.
copy_reach() {
  local file name
  for file in /etc/resolv.conf /etc/hosts /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
    if [ -f "$file" ]; then cp -L --parents "$file" "$root"; fi
  done
  if [ -d /usr/local/share/ca-certificates ]; then
    cp -aL --parents /usr/local/share/ca-certificates "$root"
    chroot "$root" update-ca-certificates >/dev/null 2>&1
  fi
  variables=()
  for name in $(compgen -e | grep -E "$PASSED" || true); do
    variables+=("$name=${!name}")
    if [ -e "${!name}" ] && [ ! -e "$root${!name}" ]; then cp -aL --parents "${!name}" "$root"; fi
  done
}

copy_tree() {
  chroot "$root" useradd --create-home tester
  mkdir "$root$PLACE"
  git ls-files -z --cached --others --exclude-standard --deduplicate |
    while IFS= read -r -d '' file; do if [ -e "$file" ]; then printf '%s\0' "$file"; fi; done |
    tar --null --create --files-from - | tar --extract --no-same-owner --directory "$root$PLACE"
}

# run_as USER COMMAND…: in fresh namespaces; whatever it leaves running ends with them.
run_as() {
  local user=$1 home
  shift
  echo "bare_root: as $user: $*" >&2
  home=$(chroot "$root" sh -c "echo ~$user")
  chroot "$root" chown -R "$user:" "$PLACE"
  unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" bash -euc '
    root=$1 cache=$2
    shift 2
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mkdir -p "$root/root/.cache/pip"
    mount --bind "$cache" "$root/root/.cache/pip"
    exec chroot "$@"
  ' bash "$root" "$pip_cache" --userspec="$user" "$root" /usr/bin/env -i "HOME=$home" "USER=$user" \
    PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin LANG=C.UTF-8 "${variables[@]}" \
    sh -c 'cd "$0" && exec "$@"' "$PLACE" "$@"
}

may_make
if [ "${1:-}" = --look ]; then exit; fi
mkdir -p "$CACHE"
lab=$(mktemp -d "$CACHE/bare.XXXXXX")
root=$lab/root
trap 'rm -rf --one-file-system "$lab"' EXIT
# One cache for all roots, that of root's pip here: pip takes none that another user owns.
pip_cache=${PIP_CACHE_DIR:-$HOME/.cache/pip}
mkdir -p "$pip_cache"
make_root
copy_reach
copy_tree
run_as root "$@"
run_as tester "$@"
