#!/usr/bin/env bash
# base_image.sh NAME DIRECTORY: import this Debian's Python, and what it depends on, as an image.
# For an engine that reaches no registry. Uses DIRECTORY for what lies between.
set -euo pipefail

name=$1 place=$2
packages=(python3 libstdc++6 tzdata coreutils bash dash grep sed tar util-linux findutils procps
  base-files base-passwd)

# The installed ones and everything they depend on.
needed=$(apt-cache depends --recurse --installed --important --no-recommends --no-suggests \
  --no-conflicts --no-breaks --no-replaces --no-enhances "${packages[@]}" 2>/dev/null |
  grep -E '^[a-z0-9]' | sort -u)

# Their files. /bin, /lib and the like are links into /usr: no path may lead through one.
for package in $needed; do dpkg -L "$package" 2>/dev/null || true; done |
  sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#' |
  grep -v -E '^/\.$|^/usr/share/(doc|man|locale|info|lintian|bug)/|/__pycache__/' | sort -u |
  while read -r file; do
    if [ -L "$file" ] || [ -f "$file" ] || [ -d "$file" ]; then echo "$file"; fi
  done >"$place/files"
printf '%s\n' /bin /sbin /lib /lib64 /etc/passwd /etc/group >>"$place/files"
sort -u "$place/files" | sed 's#^/##' >"$place/relative"
tar -C / --no-recursion -cf "$place/base.tar" -T "$place/relative"
docker import "$place/base.tar" stratamq-base:1 >/dev/null

# Debian's Python has no pip; the image that this one stands for has.
mkdir "$place/base"
.venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
  --dest "$place/base/wheels" pip
printf '%s\n' 'FROM stratamq-base:1' 'COPY wheels /wheels' \
  'RUN python3 -m zipfile -e /wheels/pip-*.whl /usr/lib/python3/dist-packages && rm -r /wheels \' \
  ' && mkdir -p /tmp && chmod 1777 /tmp' >"$place/base/Dockerfile"
DOCKER_BUILDKIT=0 docker build --quiet --tag "$name" "$place/base" >/dev/null 2>"$place/build.log" ||
  { cat "$place/build.log" >&2; exit 1; }
