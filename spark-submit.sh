#!/usr/bin/env bash
# ./spark-submit.sh JOB [options]        run a job: nightly, ingest, register, dispatch, deliver, verify, pulls, inconsistency, export, bench
# ./spark-submit.sh test [options]       run the tests (options are pytest's)
# ./spark-submit.sh python [arguments]   the project's own Python, Spark and Delta set up (notebooks, one-liners)
# Spark's own options (--master, --deploy-mode, --conf, --name, --queue, --num-executors, --executor-cores,
# --executor-memory, --driver-memory, --archives, --properties-file) go through to spark-submit; -v shows Spark's log.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
venv=$root/.venv
cache=$root/.cache

stop() {
  printf 'mqsieve: %s\n' "$1" >&2
  exit 2
}

require_java() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
  command -v "$java" >/dev/null 2>&1 ||
    stop "Java 17 or newer is needed and none was found: install one (e.g. apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
  version=$("$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1)
  [ "${version:-0}" -ge 17 ] ||
    stop "Java 17 or newer is needed, but $java is version ${version:-unknown}: install Java 17 or set JAVA_HOME to it."
}

find_python() {
  local python
  for python in python3.13 python3.12 python3.11 python3; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  stop "Python 3.11 or newer is needed and none was found: install one (e.g. apt-get install python3.11 python3.11-venv)."
}

# Leaves .venv with the pinned packages of setup.cfg, plus those of the extra named $1, if any.
make_venv() {
  local extra=${1:-} stamp=$venv/installed${1:+-$1} wanted python
  wanted=$(cksum <"$root/setup.cfg")
  [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  command -v flock >/dev/null && flock 9
  if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    python=$(find_python)
    echo "mqsieve: first use: installing Python packages into .venv (about a minute)" >&2
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv" >&2 ||
      stop "$python cannot make a virtual environment: install its venv module (e.g. apt-get install python3-venv)."
    "$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --editable "$root${extra:+[$extra]}" >&2 ||
      stop "pip could not install the packages (its message is above); check the network, or PIP_INDEX_URL."
    echo "$wanted" | tee "$venv/installed" >"$stamp"
  fi
  exec 9>&-
}

# Leaves .cache/jars with Delta's jars, so that later starts don't touch the network. What Delta shares with
# Spark is Spark's already.
resolve_delta() {
  local delta=$1 jars=$cache/jars
  [ -s "$jars/$delta" ] && return
  echo "mqsieve: first use: resolving $delta" >&2
  mkdir -p "$cache"
  if ! "$SPARK_HOME/bin/spark-submit" --master 'local[1]' --packages "$delta" --conf "spark.jars.ivy=$cache/ivy" \
    --exclude-packages org.apache.hadoop:hadoop-client-runtime,org.apache.hadoop:hadoop-client-api,org.apache.parquet:parquet-hadoop,com.github.luben:zstd-jni,org.apache.logging.log4j:log4j-core,org.apache.logging.log4j:log4j-slf4j2-impl,com.fasterxml.jackson.core:jackson-databind \
    "$root/conf/resolve_packages.py" >"$cache/ivy.log" 2>&1; then
    grep -iE 'unresolved|not found:|download failed|unknown host' "$cache/ivy.log" | head -n 5 >&2
    stop "Delta's jars could not be resolved ($cache/ivy.log tells all). Check the network; if a Maven repository (~/.m2) holds half-downloaded files of io.delta, remove them there and try again."
  fi
  rm -rf "$jars" && mkdir -p "$jars"
  cp "$cache"/ivy/jars/io.delta_*.jar "$cache"/ivy/jars/io.unitycatalog_*.jar "$jars/"
  rm -rf "$cache/ivy" "$cache/spark.jsa"
  ls "$jars" >"$jars/$delta.part" && mv "$jars/$delta.part" "$jars/$delta"
}

[ $# -gt 0 ] || { sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
job=$1
shift
case $job in
  -h | --help | help) sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}"; exit 0 ;;
  test | python | bench) ;;
  *[!a-z-]* | '') stop "'$job' is not a job; ./spark-submit.sh --help lists them." ;;
  *) [ -f "$root/jobs/${job//-/_}.py" ] || stop "there is no job '$job'; ./spark-submit.sh --help lists them." ;;
esac

spark_options=()
job_options=()
master=
properties_file=$root/conf/local.conf
level=fatal
while [ $# -gt 0 ]; do
  case $job:$1 in
    test:* | python:* | bench:*) job_options+=("$1") ;;
    *:--master=*) master=${1#*=} ;;
    *:--master) master=${2:?--master needs a value}; shift ;;
    *:--properties-file) properties_file=${2:?--properties-file needs a value}; shift ;;
    *:--conf | *:--deploy-mode | *:--name | *:--queue | *:--num-executors | *:--executor-cores | *:--executor-memory | *:--driver-memory | *:--archives | *:--packages | *:--py-files)
      spark_options+=("$1" "${2:?$1 needs a value}")
      shift
      ;;
    *:--conf=* | *:--deploy-mode=* | *:--driver-memory=* | *:--executor-memory=*) spark_options+=("$1") ;;
    *:-v | *:--verbose) level=info ;;
    *) job_options+=("$1") ;;
  esac
  shift
done

require_java
case $job in test) make_venv test ;; bench) make_venv bench ;; *) make_venv ;; esac
if [ -z "${SPARK_HOME:-}" ]; then
  SPARK_HOME=$(echo "$venv"/lib/python3*/site-packages/pyspark)
else
  ls "$SPARK_HOME"/jars/spark-core_2.13-4.2.*.jar >/dev/null 2>&1 ||
    stop "SPARK_HOME ($SPARK_HOME) is not Spark 4.2: unset it to use the Spark in .venv, or point it to a Spark 4.2."
fi
export SPARK_HOME
export PYSPARK_PYTHON=${PYSPARK_PYTHON:-$venv/bin/python}
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
export MQSIEVE_LOG_LEVEL=$level
[ -t 2 ] && export MQSIEVE_TERMINAL=1
delta=io.delta:delta-spark_4.2_2.13:4.4.0

java_options="-Dlog4j2.configurationFile=file:$root/conf/log4j2.properties"
quiet="-Xlog:cds=off -Xlog:cds+dynamic=off"
# Java's second compiler waits until code has run ten times as often as it would: at the start it takes a core from the job.
patient="-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"

# Makes $1 an archive of the classes that jobs load (class-data sharing), so that later starts find them parsed.
archive_classes() {
  SPARK_LOCAL_IP=127.0.0.1 SPARK_SUBMIT_OPTS="$java_options -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit=$1 $quiet" \
    "$SPARK_HOME/bin/spark-submit" --properties-file "$root/conf/local.conf" --driver-class-path "$cache/jars/*" \
    "$root/conf/load_classes.py" >"$cache/load_classes.log" 2>&1 ||
    stop "a first small job failed; $cache/load_classes.log tells why."
}

# Everything that the first start leaves for later ones: Delta's jars, Numba's compiled kernels, Java's classes.
prepare_starts() {
  local archive=$cache/spark.jsa kernels=
  if [ ! -s "$archive" ]; then
    mkdir -p "$cache"
    echo "mqsieve: first use: compiling kernels, and archiving Java's classes (under a minute)" >&2
    "$venv/bin/python" "$root/conf/compile_kernels.py" >"$cache/compile_kernels.log" 2>&1 &
    kernels=$!
  fi
  resolve_delta "$delta"
  [ -s "$archive" ] || archive_classes "$archive.new.$$"
  [ -z "$kernels" ] || wait "$kernels" || stop "the kernels could not be compiled; $cache/compile_kernels.log tells why."
  [ -s "$archive" ] || mv -f "$archive.new.$$" "$archive"
  java_options="$java_options $patient -XX:SharedArchiveFile=$archive $quiet"
}

local_java() {
  prepare_starts
  export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}
  export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} $java_options"
}

case $job in
  test) local_java; cd "$root"; exec "$venv/bin/python" -m pytest "${job_options[@]}" ;;
  python) local_java; exec "$venv/bin/python" "${job_options[@]}" ;;
  bench) local_java; cd "$root"; exec "$venv/bin/python" -m benchmarks "${job_options[@]}" ;;
esac

submit() {
  export MQSIEVE_STDERR=/proc/$$/fd/2
  "$SPARK_HOME/bin/spark-submit" --properties-file "$properties_file" --load-spark-defaults \
    "${spark_options[@]}" "$root/jobs/${job//-/_}.py" "${job_options[@]}" 2> >(grep --line-buffered -v '^WARNING: Using incubator modules' >&2)
}

[ -z "$master" ] || spark_options+=(--master "$master")
case $master in
  '' | local*)
    spark_options+=(--driver-class-path "$cache/jars/*")
    local_java
    ;;
  *)
    resolve_delta "$delta"
    [ "$properties_file" != "$root/conf/local.conf" ] || properties_file=$root/conf/cluster.conf
    rm -f "$cache/mqsieve.zip"
    (cd "$root" && "$venv/bin/python" -m zipfile -c "$cache/mqsieve.zip" filtering schemas jobs)
    spark_options+=(--py-files "$cache/mqsieve.zip" --jars "$(echo "$cache"/jars/*.jar | tr ' ' ,)")
    ;;
esac
submit
