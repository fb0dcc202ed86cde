#!/usr/bin/env bash
# base_image.sh NAME DIRECTORY PACKAGE…: import this Debian's Python, these installed packages, and what they
# depend on, as an image. For an engine that reaches no registry. Uses DIRECTORY, which it makes, for what lies
# between.
set -euo pipefail

name=$1 place=$2
shift 2
mkdir -p "$place"
scripts/package_image.sh stratamq-base:1 "$place/packages" python3 libstdc++6 tzdata ca-certificates coreutils \
  bash dash grep sed tar util-linux findutils procps "$@"

# Debian's Python has no pip; the image that this one stands for has.
mkdir "$place/base"
.venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
  --dest "$place/base/wheels" pip
printf '%s\n' 'FROM stratamq-base:1' 'COPY wheels /wheels' \
  'RUN python3 -m zipfile -e /wheels/pip-*.whl /usr/lib/python3/dist-packages && rm -r /wheels \' \
  ' && mkdir -p /tmp && chmod 1777 /tmp' >"$place/base/Dockerfile"
DOCKER_BUILDKIT=0 docker build --quiet --tag "$name" "$place/base" >/dev/null 2>"$place/build.log" ||
  { cat "$place/build.log" >&2; exit 1; }
