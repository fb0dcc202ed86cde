#!/usr/bin/env bash
# spark_base.sh DIRECTORY PACKAGE…: what deploy/spark/Dockerfile needs where containers have no way out: its base image
# of this Debian's packages, among them these, and in DIRECTORY/wheels all wheels. As root; for with_engine.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

place=$1
shift
mkdir -p "$place/wheels"
scripts/install_packages.sh openjdk-17-jre-headless
scripts/base_image.sh python:3.11-slim-bookworm "$place/base" openjdk-17-jre-headless "$@"
.venv/bin/python -m pip wheel --quiet --disable-pip-version-check \
  --wheel-dir "$place/wheels" hatchling ".[pipeline,avro,tier]"
