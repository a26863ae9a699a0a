#!/usr/bin/env bash
# Regenerates conf/requirements*.txt from setup.cfg. Run it after you change the packages there.
# The files pin all packages, including dependencies of packages, with the sha256 of each file in the registry, for all
# operating systems and versions of Python. spark-submit.sh installs only these files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tool=.cache/lock-tool
python3 -m venv "$tool"
"$tool/bin/python" -m pip install --quiet --disable-pip-version-check uv==0.13.9
[ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE=${SSL_CERT_FILE:-$PIP_CERT}
[ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}

lock() {
  local file=$1
  shift
  echo "# Made by conf/lock.sh from setup.cfg and pyproject.toml: change those, and run it again." >"$file"
  "$tool/bin/uv" pip compile --universal --python-version 3.11 --generate-hashes --no-header --quiet "$@" >>"$file"
}

# One version of each package, whatever else is installed beside it.
lock .cache/all.txt --extra test --extra bench setup.cfg
lock conf/requirements-build.txt - < <(sed -n 's/^requires = \["\(.*\)"\]$/\1/p' pyproject.toml)
lock conf/requirements.txt --constraint .cache/all.txt setup.cfg
lock conf/requirements-test.txt --constraint .cache/all.txt --extra test setup.cfg
lock conf/requirements-bench.txt --constraint .cache/all.txt --extra bench setup.cfg
