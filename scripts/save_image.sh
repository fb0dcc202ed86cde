#!/usr/bin/env bash
# save_image.sh NAME FILE DOCKERFILE WHEELS: build an image of this project and save it, for a cluster that reaches no
# registry. Under with_engine.sh, which gives the wheels, "" or a directory, where containers have no way out.
set -euo pipefail
cd "$(dirname "$0")/.."

name=$1 file=$2 dockerfile=$3 wheels=$4
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
git ls-files --cached --others --exclude-standard -z | xargs -0 cp --parents -t "$place"
if [ -n "$wheels" ]; then
  cp "$wheels"/*.whl "$place/deploy/wheels/"
fi
DOCKER_BUILDKIT=0 docker build --quiet --tag "$name" --file "$place/$dockerfile" "$place" >/dev/null
docker save "$name" --output "$file"
