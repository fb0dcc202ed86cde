#!/usr/bin/env bash
# Build Docker Compose v2 as a plugin from its Go modules, for machines without one. Takes Go, minutes
# and a GB of Go's caches, once; scripts/with_engine.sh finds it.
set -euo pipefail

version=${1:-v2.40.3}
cache="${XDG_CACHE_HOME:-$HOME/.cache}/stratamq"
plugin="$cache/docker/cli-plugins/docker-compose"
if [ -x "$plugin" ] && [ "$("$plugin" version --short)" = "${version#v}" ]; then
  exit
fi
mkdir -p "$cache"
place=$(mktemp -d "$cache/compose.XXXXXX")
trap 'rm -rf "$place"' EXIT
cd "$place"
export GOFLAGS=-mod=mod CGO_ENABLED=0
# `go install` refuses a module with excludes, so that a module of ours repeats its requirements.
source=$(go mod download -json "github.com/docker/compose/v2@$version" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
sed -E 's#^module .*#module example.test/compose#; /^toolchain/d' "$source/go.mod" >go.mod
echo "require github.com/docker/compose/v2 $version" >>go.mod
install -m 644 "$source/go.sum" go.sum
go build -trimpath -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$version" \
  -o docker-compose github.com/docker/compose/v2/cmd
install -D docker-compose "$plugin"
"$plugin" version
