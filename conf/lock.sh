#!/usr/bin/env bash
# conf/lock.sh makes conf/requirements*.txt anew from setup.cfg: run it after a change of the packages there.
# They pin every package that is needed, also by others, with the sha256 of each file that the registry has of it, for
# every operating system and Python. spark-submit.sh installs what they list, and nothing else.
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

lock conf/requirements-build.txt - < <(sed -n 's/^requires = \["\(.*\)"\]$/\1/p' pyproject.toml)
lock conf/requirements.txt setup.cfg
lock conf/requirements-test.txt --extra test setup.cfg
lock conf/requirements-bench.txt --extra bench setup.cfg
