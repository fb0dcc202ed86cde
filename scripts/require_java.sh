#!/usr/bin/env bash
# Succeed if Java 17 or newer and Maven are here; otherwise say what is missing.
set -euo pipefail

missing=()
version=$(java -XshowSettings:properties -version 2>&1 |
  sed -n 's/^ *java\.specification\.version = //p' || true)
if [ -z "$version" ]; then
  missing+=("Java 17 (apt-get install openjdk-17-jdk-headless)")
elif [ "${version%%.*}" -lt 17 ]; then
  missing+=("Java 17 (found: $version)")
fi
if ! command -v javac >/dev/null; then
  missing+=("javac (apt-get install openjdk-17-jdk-headless)")
fi
if ! command -v mvn >/dev/null; then
  missing+=("Maven (apt-get install maven)")
fi
if [ "${#missing[@]}" -gt 0 ]; then
  printf 'the tests that the real RocketMQ judges cannot run, missing: %s\n' "${missing[@]}" >&2
  exit 1
fi
