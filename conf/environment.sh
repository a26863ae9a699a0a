# shellcheck shell=bash
# Sets up the environment of spark-submit.sh: the virtual environment .venv, and Spark. Sets python, SPARK_HOME, and
# installed: whether this is the package, whose command mqsieve says in which Python it is (mqsieve/__main__.py).
venv=${root:?}/.venv
cache=$root/.cache
installed=${MQSIEVE_PYTHON:+yes}
python=${MQSIEVE_PYTHON:-$venv/bin/python}
unset MQSIEVE_PYTHON
program=${installed:+mqsieve}
: "${program:=./spark-submit.sh}"

# glibc gives each thread memory of its own, and rarely returns it: a process that runs many nights would grow.
export MALLOC_ARENA_MAX=${MALLOC_ARENA_MAX:-1}
# Arrow returns freed memory after this many milliseconds, by default 10: then each batch would get its pages anew.
export MIMALLOC_PURGE_DELAY=${MIMALLOC_PURGE_DELAY:-1000}
# Containers often tell Python to write no bytecode beside the sources. Without any, a command takes twice as long.
if [ -n "${PYTHONDONTWRITEBYTECODE:-}" ] && [ -z "$installed" ]; then
  unset PYTHONDONTWRITEBYTECODE
  export PYTHONPYCACHEPREFIX=${PYTHONPYCACHEPREFIX:-$cache/bytecode}
fi

stop() {
  printf 'mqsieve: %s\n' "$1" >&2
  exit 2
}

find_python() {
  local python
  for python in python3.13 python3.12 python3.11 python3.14 python3; do
    if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  stop "Python 3.11 to 3.14 was not found: install it (e.g. apt-get install python3.11 python3.11-venv)."
}

# Installs packages into .venv. Builds use the packages that are installed already.
install() {
  "$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --no-build-isolation "$@" >&2
}

is_installed() {
  [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && [ -x "$venv/bin/python" ]
}

# Numba compiles the loops that read logs and match messages for this processor.
compile_loops() {
  "$venv/bin/python" -P "$root/conf/compile_loops.py" >/dev/null 2>&1 || : # then the first night compiles them
}

# Makes .venv with the packages of setup.cfg, and of the extra $1 if there is one. It installs only files whose hashes
# are in conf/requirements*.txt (see conf/lock.sh).
make_venv() {
  local extra=${1:-} stamp=$venv/installed${1:+-$1} wanted python packages
  local systems='They exist for Linux with glibc, and for macOS on Apple silicon.'
  packages=$root/conf/requirements${extra:+-$extra}.txt
  [ -z "$installed" ] || return 0
  wanted=$(cat "$root/setup.cfg" "$root"/conf/requirements*.txt | cksum)
  is_installed && return
  { mkdir -p "$cache" && : >>"$cache/lock"; } 2>/dev/null || {
    home=$(sed -n 's/^home = //p' "$venv/pyvenv.cfg" 2>/dev/null || true)
    [ -z "$home" ] || [ -x "$venv/bin/python" ] ||
      stop "$root uses the Python in $home, which you may not run: its owner removes .venv, and runs a command there \
with a Python first in PATH that all users may run, such as /usr/bin/python3."
    stop "$root is not installed, or you may not read its .venv: run a command there once as its owner, with umask 022."
  }
  exec 9>>"$cache/lock"
  command -v flock >/dev/null && flock 9
  if ! is_installed; then
    python=$(find_python)
    echo "mqsieve: first use: installing Python packages into .venv (about a minute)" >&2
    # One that was half made, or whose Python was removed, is made anew.
    "$venv/bin/python" -c 'import pip' 2>/dev/null || "$python" -m venv "$venv" --clear >&2 ||
      stop "$python cannot make a virtual environment: install its venv module (e.g. apt-get install python3-venv)."
    # pyspark is by far the largest package, and built from its sources: the loops are compiled beside it.
    # Compressing its jars once more would take 10 s. Where the packages of --only-binary have no wheel, they cannot be
    # built either.
    local compiler=''
    { install --require-hashes --requirement "$root/conf/requirements-build.txt" &&
      install --require-hashes --no-deps --only-binary=arro3-core,deltalake,llvmlite,numba,numpy,pandas,pyarrow \
        --requirement <(sed '/^pyspark==/,/[^\\]$/d' "$packages") &&
      install --no-deps --editable "$root" &&
      { compile_loops & compiler=$!; } &&
      install --require-hashes --config-settings=--build-option=--compression=stored --requirement "$packages"; } ||
      stop "pip could not install the packages (its message is above): check the network, or PIP_INDEX_URL. $systems"
    wait "$compiler"
    echo "$wanted" | tee "$venv/installed" >"$stamp"
  fi
  exec 9>&-
}

# Sets SPARK_HOME to the Spark in .venv, unless the caller has set it.
find_spark() {
  if [ -z "${SPARK_HOME:-}" ]; then
    SPARK_HOME=${MQSIEVE_PYSPARK:-$(echo "$venv"/lib/python3*/site-packages/pyspark)}
  else
    ls "$SPARK_HOME"/jars/spark-core_2.13-4.2.*.jar >/dev/null 2>&1 ||
      stop "SPARK_HOME ($SPARK_HOME) is not Spark 4.2: unset it to use the Spark in .venv, or point it to a Spark 4.2."
  fi
  export SPARK_HOME
}
