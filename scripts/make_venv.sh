#!/usr/bin/env bash
# make_venv.sh [EXTRA]: make or renew .venv with the broker alone, or with an extra of pyproject.toml as
# well (bench, dev). On a Debian machine whose Python lacks the venv module: as root install it,
# otherwise say how.
set -euo pipefail
cd "$(dirname "$0")/.."

# The interpreter: $PYTHON, or the first that is new enough.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "make_venv: Python 3.11 or newer is needed (apt-get install python3); \
PYTHON=/path/to/python chooses one" >&2
  return 1
}

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  python=$(find_python)
  if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
      echo "make_venv: $python has no venv module; run: sudo apt-get install $package" >&2
      exit 1
    fi
    echo "make_venv: installing $package" >&2
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$package"
  fi
  "$python" -m venv --clear .venv
fi

extra=${1:-}
echo "make_venv: installing StrataMQ${extra:+ with the extra $extra} into .venv" >&2
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".${extra:+[$extra]}"
touch .venv/.installed ${extra:+".venv/.installed-$extra"}
