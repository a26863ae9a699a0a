#!/usr/bin/env bash
# ./spark-submit.sh JOB [options]        run a job; JOB --help tells its options
# ./spark-submit.sh test [options]       run the tests (options are pytest's)
# ./spark-submit.sh python [arguments]   the project's own Python (notebooks, one-liners)
# ./spark-submit.sh bench [options]      measure
# spark-submit's own options (--master, --conf, --jars, …) go through to it; -v shows Spark's log, and stack traces.
set -eo pipefail # without -u: for the bash 3.2 of macOS, an empty array is unset
script=${BASH_SOURCE[0]}
while [ -L "$script" ]; do # macOS before 12.3 has no readlink -f
  folder=$(cd "$(dirname "$script")" && pwd -P)
  script=$(readlink "$script")
  case $script in /*) ;; *) script=$folder/$script ;; esac
done
root=$(cd "$(dirname "$script")" && pwd -P)
# shellcheck source=conf/environment.sh
source "$root/conf/environment.sh"
package=${installed:+mqsieve.}

help() {
  if [ -n "$installed" ]; then
    sed -n '2s,^# \./spark-submit\.sh,mqsieve,p; 6s/^# //p' "${BASH_SOURCE[0]}"
  else
    sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}"
  fi
  echo
  echo "jobs:"
  local file
  for file in "$root"/jobs/[a-z]*.py; do
    printf '  %-14s%s\n' "$(job_of "$file")" "$(sed -n '1s/^"""[a-z-]*: \(.*[^"]\)"*$/\1/p' "$file")"
  done
}

# The job that a module is.
job_of() {
  local name
  name=$(basename "$1" .py)
  echo "${name//_/-}"
}

check_job() {
  case $installed$1 in # the package has none of these
    test | python | bench) return ;;
  esac
  case $1 in
    *[!a-z-]* | '') ;;
    *) [ -f "$root/jobs/${1//-/_}.py" ] && return ;;
  esac
  local hint='' known=() module
  if [ -x "$python" ]; then
    for module in "$root"/jobs/[a-z]*.py; do known+=("$(job_of "$module")"); done
    hint=$(cd "$root" && "$python" -c \
      "import sys; from ${package}filtering.counted import did_you_mean; print(did_you_mean(sys.argv[1], sys.argv[2:]))" \
      "$1" "${known[@]}")
  fi
  stop "there is no job '$1'${hint:-;} $program --help lists them."
}

# Prints a text; ends with 141 if the reader of the output closed it, as head does.
print() { printf '%s\n' "$1" 2>/dev/null || exit 141; }

[ $# -gt 0 ] || { print "$(help)" >&2; exit 2; }
job=$1
shift
case $job in
  -h | --help | help) print "$(help)"; exit 0 ;;
  --version) print "$(sed -n 's/^VERSION = "\(.*\)"$/mqsieve \1/p' "$root/schemas/__init__.py")"; exit 0 ;;
esac
check_job "$job"
if [ "$job" = bench ]; then
  for option in "$@"; do
    case $option in
      -h | --help) # installs nothing
        module=$root/benchmarks/$1.py
        case $1 in -* | *[!a-z_]*) module=$root/benchmarks/__main__.py ;; esac
        [ -f "$module" ] || module=$root/benchmarks/__main__.py
        sed -n '1s/^"""//; /^"""/q; p' "$module"
        exit 0
        ;;
    esac
  done
fi

job_options=()
queue=()
spark_options=()
jars='' py_files='' archives='' master='' deploy_mode=client properties_file='' level=fatal
workers_python=${PYSPARK_PYTHON:-}
while [ $# -gt 0 ]; do
  case $job:$1 in
    test:* | python:* | bench:*) job_options+=("$1"); shift; continue ;;
    explain:--queue | explain:--queue=*) job_options+=("$1"); shift; continue ;; # of the topic, not of YARN
    *:-v | *:--verbose) level=info; shift; continue ;;
  esac
  option=${1%%=*} value=${1#*=} width=1
  case $option in
    --master | --deploy-mode | --conf | --name | --queue | --num-executors | --executor-cores | --executor-memory | \
      --driver-memory | --driver-cores | --archives | --files | --packages | --repositories | --py-files | --jars | \
      --properties-file | --principal | --keytab)
      if [ "$option" = "$1" ]; then
        [ $# -gt 1 ] && [ "${2#--}" = "$2" ] || stop "$option needs a value; $program --help tells more."
        value=$2 width=2
      fi
      ;;
  esac
  case $option in
    --master) master=$value ;;
    --jars) jars=$value ;;
    --py-files) py_files=$value ;;
    --archives) archives=$value ;;
    --properties-file) properties_file=$value ;;
    --deploy-mode) deploy_mode=$value ;;
    --queue) queue=("$option" "$value") ;;
    --conf | --name | --num-executors | --executor-cores | --executor-memory | \
      --driver-memory | --driver-cores | --files | --packages | --repositories | --principal | --keytab)
      case $value in
        spark.submit.deployMode=*) deploy_mode=${value#*=} ;;
        *) spark_options+=("$option" "$value") ;;
      esac
      ;;
    *) job_options+=("$1") ;;
  esac
  shift "$width"
done

case $master in
  yarn) spark_options+=("${queue[@]}") ;;
  *) job_options+=("${queue[@]}") ;; # of which the job says that it does not know it
esac

case $deploy_mode:$master in
  cluster:spark://*)
    stop "Spark's standalone clusters have no --deploy-mode cluster for Python: leave it out."
    ;;
  cluster: | cluster:local*) stop "--deploy-mode cluster needs --master yarn or k8s://…: see docs/CLUSTER.md." ;;
  client:* | cluster:*) ;;
  *) stop "--deploy-mode is client or cluster, not '$deploy_mode'." ;;
esac

case $master in
  '' | local | 'local['*']' | 'local-cluster['*']' | spark://* | k8s://* | yarn) ;;
  *) stop "--master is local[N], spark://HOST:PORT, yarn or k8s://…, not '$master'." ;;
esac

case $job in test | bench) make_venv "$job" ;; *) make_venv ;; esac
find_spark
[ -n "$installed" ] || export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
export PYSPARK_PYTHON=${PYSPARK_PYTHON:-$python} PYSPARK_DRIVER_PYTHON=$python MQSIEVE_LOG_LEVEL=$level
[ $level = info ] || export RUST_LOG=${RUST_LOG:-off} # the errors of delta-rs are in the job's own message
[ -t 2 ] && export MQSIEVE_TERMINAL=1

case $job in
  test) cd "$root"; exec "$python" -m pytest "${job_options[@]}" ;;
  python) exec "$python" "${job_options[@]}" ;;
  bench) cd "$root"; exec "$python" -m benchmarks "${job_options[@]}" ;;
esac

application=$root/jobs/${job//-/_}.py
case $master in
  '' | local*)
    # The job starts Spark itself, in this process, where there is enough to do.
    [ -z "$master" ] || spark_options+=(--master "$master")
    [ -z "$jars" ] || spark_options+=(--jars "$jars")
    [ -z "$py_files" ] || spark_options+=(--py-files "$py_files")
    [ -z "$archives" ] || spark_options+=(--archives "$archives")
    [ -z "$properties_file" ] || spark_options+=(--properties-file "$properties_file")
    MQSIEVE_SPARK_OPTIONS=$(printf '%s\n' "${spark_options[@]}") exec "$python" -P "$root/jobs/cli/start.py" \
      "$application" "${job_options[@]}"
    ;;
esac

# A cluster: the code and Delta's jars travel with the job.
cluster_files=$("$python" -m "${package}jobs.cli.session")
{ read -r delta_jars && read -r code; } <<<"$cluster_files"
[ -z "$py_files" ] || spark_options+=(--py-files "$py_files")
if [ "$deploy_mode" = cluster ]; then
  # The driver starts where Spark unpacked the archives, and looks for modules there.
  spark_options=(--deploy-mode cluster --conf spark.yarn.appMasterEnv.PYTHONPATH=.
    --conf spark.kubernetes.driverEnv.PYTHONPATH=. "${spark_options[@]}")
  # YARN and Kubernetes pass these variables on.
  unset PYSPARK_DRIVER_PYTHON
  if [ -n "$workers_python" ]; then
    spark_options=(--conf "spark.pyspark.python=$workers_python" "${spark_options[@]}")
  else
    unset PYSPARK_PYTHON
  fi
  export MQSIEVE_LOG_LEVEL=info # what the job prints is in the driver's log: here Spark tells the state
fi
export MQSIEVE_STDERR=/proc/$$/fd/2
export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -Dlog4j2.configurationFile=file:${root// /%20}/conf/log4j2.properties"
"$SPARK_HOME/bin/spark-submit" --master "$master" \
  --properties-file "${properties_file:-$root/conf/cluster.conf}" --load-spark-defaults \
  --jars "$delta_jars${jars:+,$jars}" --archives "$code${archives:+,$archives}" \
  "${spark_options[@]}" "$application" "${job_options[@]}" \
  2> >(grep --line-buffered -v '^WARNING: Using incubator modules' >&2)
