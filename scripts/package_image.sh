#!/usr/bin/env bash
# package_image.sh NAME DIRECTORY PACKAGE…: import the files of installed Debian packages, and of
# those that they depend on, as an image. Uses DIRECTORY, which it makes, for what lies between.
set -euo pipefail

name=$1 place=$2
shift 2
mkdir -p "$place"

# The installed ones and everything they depend on.
needed=$(apt-cache depends --recurse --installed --important --no-recommends --no-suggests \
  --no-conflicts --no-breaks --no-replaces --no-enhances "$@" base-files base-passwd 2>/dev/null |
  grep -E '^[a-z0-9]' | sort -u)

# Their files. /bin, /lib and the like are links into /usr: no path may lead through one.
for package in $needed; do dpkg -L "$package" 2>/dev/null || true; done |
  sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#' |
  grep -v -E '^/\.$|^/usr/share/(doc|man|locale|info|lintian|bug)/|/__pycache__/' | sort -u |
  while read -r file; do
    if [ -L "$file" ] || [ -f "$file" ] || [ -d "$file" ]; then echo "$file"; fi
  done >"$place/files"
printf '%s\n' /bin /sbin /lib /lib64 /etc/passwd /etc/group >>"$place/files"
# Made when the package is installed, and no file of it.
if grep -qx ca-certificates <<<"$needed"; then
  echo /etc/ssl/certs/ca-certificates.crt >>"$place/files"
fi
sort -u "$place/files" | sed 's#^/##' >"$place/relative"
# 1: a directory changed meanwhile, as /tmp does; what is in it is not taken.
tar -C / --no-recursion --warning=no-file-changed -cf "$place/base.tar" -T "$place/relative" || [ $? -eq 1 ]
docker import "$place/base.tar" "$name" >/dev/null
rm "$place/base.tar"
