#!/usr/bin/env bash
# install_packages.sh PACKAGE…: those of Debian's packages that are not installed yet; needs root. The daemons
# that they bring are neither started nor enabled.
set -euo pipefail

POLICY=/usr/sbin/policy-rc.d  # what Debian's packages ask before they start a service: 101 means no

forbid_starts() {
  if [ -e "$POLICY" ]; then return; fi
  trap 'rm -f "$POLICY"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$POLICY"
  chmod 755 "$POLICY"
}

disable_services() {
  command -v systemctl >/dev/null || return 0
  local unit
  for unit in $(dpkg -L "$@" | sed -n 's|.*/systemd/system/\([^/@]*\.service\)$|\1|p'); do
    systemctl disable --quiet "$unit" 2>/dev/null || echo "$unit is not disabled: see systemctl status" >&2
  done
}

missing=()
for package in "$@"; do
  case " ${missing[*]-} " in *" $package "*) continue ;; esac
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
  echo "installing ${missing[*]}" >&2
  forbid_starts
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >&2
  disable_services "${missing[@]}"
fi
