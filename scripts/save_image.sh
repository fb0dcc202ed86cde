#!/usr/bin/env bash
# save_image.sh NAME FILE: build the image of deploy/Dockerfile and save it, for a cluster that reaches no registry.
# Under with_engine.sh, which gives the wheels where containers have no way out.
set -euo pipefail
cd "$(dirname "$0")/.."

name=$1 file=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
git ls-files --cached --others --exclude-standard -z | xargs -0 cp --parents -t "$place"
if [ -n "${STRATAMQ_TEST_WHEELS:-}" ]; then
  cp "$STRATAMQ_TEST_WHEELS"/*.whl "$place/deploy/wheels/"
fi
DOCKER_BUILDKIT=0 docker build --quiet --tag "$name" --file "$place/deploy/Dockerfile" "$place" >/dev/null
docker save "$name" --output "$file"
