#!/usr/bin/env bash
# Print the home of a Java 17 or newer, for Spark. Where there is none: as root on Debian install one
# and say so, otherwise say how. `--only-look` installs nothing.
set -euo pipefail

PACKAGE=openjdk-17-jre-headless

# The version that a java program says it is, 0 when it is none.
version_of() {
  local said
  said=$("$1" -XshowSettings:properties -version 2>&1 |
    sed -n 's/^ *java\.specification\.version = //p' || true)
  said=${said%%.*}
  echo "${said:-0}"
}

# JAVA_HOME, what `java` is, and where distributions put theirs.
find_home() {
  local candidate
  for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" \
    /usr/lib/jvm/*/bin/java; do
    if [ -n "$candidate" ] && [ -x "$candidate" ] && [ "$(version_of "$candidate")" -ge 17 ]; then
      dirname "$(dirname "$(readlink -f "$candidate")")"
      return
    fi
  done
  return 1
}

if find_home; then
  exit
fi
if [ "${1:-}" = --only-look ] || [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "Spark needs Java 17 or newer, and none was found; run: sudo apt-get install $PACKAGE" >&2
  exit 1
fi
echo "Spark needs Java 17 or newer, and none was found: installing $PACKAGE" >&2
apt-get update -qq >&2
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$PACKAGE" >&2
find_home
