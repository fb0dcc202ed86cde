#!/usr/bin/env bash
# build.sh DIRECTORY: the binaries of a cluster of our own, minik8s and pause, from the Go modules here.
# Some 30 minutes on two cores, once; needs Go, and 6 GB for its caches.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")"

version=$(sed -n 's/^require k8s.io\/kubernetes v//p;s/^\tk8s.io\/kubernetes v//p' go.mod | head -1)
package=k8s.io/component-base/version minor=${version#1.}
export CGO_ENABLED=0
(cd pause && go build -trimpath -ldflags "-s -w" -o "$out/pause" .)
go build -trimpath -o "$out/minik8s" -ldflags "-s -w -X $package.gitVersion=v$version -X $package.gitMajor=1 \
  -X $package.gitMinor=${minor%%.*}" .
