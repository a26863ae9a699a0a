#!/usr/bin/env bash
# Regenerates conf/requirements*.txt from setup.cfg and the groups in pyproject.toml. Run it after you change the
# packages there; with --upgrade, or --upgrade-package NAME, for newer versions within the ranges there. Other packages
# keep the version that they have.
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
  "$tool/bin/uv" pip compile --universal --python-version 3.11 --generate-hashes --no-header --quiet \
    --output-file .cache/locked.txt "$@"
  echo "# Made by conf/lock.sh from setup.cfg and pyproject.toml: change those, and run it again." |
    cat - .cache/locked.txt >"$file"
}

# One version of each package, whatever else is installed beside it.
cat conf/requirements-test.txt conf/requirements-bench.txt >.cache/locked.txt
lock .cache/all.txt --group test --group bench "$@" setup.cfg
lock conf/requirements-build.txt - < <(sed -n 's/^requires = \["\(.*\)"\]$/\1/p' pyproject.toml)
lock conf/requirements.txt --constraint .cache/all.txt setup.cfg
lock conf/requirements-test.txt --constraint .cache/all.txt --group test setup.cfg
lock conf/requirements-bench.txt --constraint .cache/all.txt --group bench setup.cfg
