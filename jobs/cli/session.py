"""The Spark session of a job, a notebook or the tests, and the files that it needs.

Run as a program it prints two lines, the URIs of Delta's jars and those of the archives with mqsieve's packages, joined
by commas: what spark-submit.sh gives to a cluster.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

from jobs.cli.application import ExitCode, allow_pandas
from schemas import IS_PACKAGE
from schemas.errors import UsageError, given_spark_options
from schemas.spark_tasks import is_session_given

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Downloads Delta's jars, which Spark needs for Delta tables, once, and checks their digests.
#
# They come from Maven Central, or from the repository in the environment variable MQSIEVE_MAVEN.


PROJECT = Path(__file__).resolve().parent.parent.parent
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mqsieve" if IS_PACKAGE else PROJECT / ".cache"
)
JARS = CACHE / "jars"
CENTRAL = "https://repo1.maven.org/maven2"
SECONDS = 60


def delta_jars() -> list[Path]:
    """The jars that conf/delta_jars.txt lists. Raises UsageError if one cannot be downloaded."""
    listed = [line.split() for line in (PROJECT / "conf" / "delta_jars.txt").read_text("ascii").splitlines()]
    missing = [(digest, path) for digest, path in listed if not _file(path).exists()]
    if missing:
        print("mqsieve: first use of Spark: downloading Delta's jars", file=sys.stderr)
        try:
            JARS.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            place = "set XDG_CACHE_HOME to one that you may write to" if IS_PACKAGE else "run this once as the owner"
            raise UsageError(f"there is no folder for Delta's jars, {JARS} ({error.strerror}): {place}") from None
        with ThreadPoolExecutor(len(missing)) as threads:
            list(threads.map(_download, *zip(*missing, strict=True)))
    return [_file(path) for _, path in listed]


def _file(path: str) -> Path:
    return JARS / path.rpartition("/")[2]


def _download(digest: str, path: str) -> None:
    url = f"{os.environ.get('MQSIEVE_MAVEN', CENTRAL).rstrip('/')}/{path}"
    if not url.startswith("https://"):
        raise UsageError(f"{url} is not https: set MQSIEVE_MAVEN to a Maven repository's https address")
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as response:  # noqa: S310
            content = response.read()
    except OSError as error:
        raise UsageError(
            f"{url} could not be downloaded ({error}): check the network, or set MQSIEVE_MAVEN to a Maven repository"
        ) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise UsageError(f"{url} is not the expected file (another sha256): try again, or set another MQSIEVE_MAVEN")
    beside = _file(path).with_suffix(f".{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(_file(path))


OLDEST_JAVA = 17
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def spark_session(app_name: str) -> SparkSession:
    """The active session, or a new one.

    A platform (Spark Connect, a managed notebook) or spark-submit brings its own settings; a plain Python process
    gets those of conf/local.conf, and Delta's jars. Raises UsageError if Java is missing.
    """
    allow_pandas()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if not is_session_given():
        _check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if os.environ.get("LC_ALL") in ("C", "POSIX"):  # then Java finds no path that is not ASCII; Python does
            os.environ["LC_ALL"] = "C.UTF-8"
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*_local_options(), "pyspark-shell"])
        _log_no_raised_errors()
        with _stderr_of_java(), _ended_if_interrupted():
            return SparkSession.builder.appName(app_name).getOrCreate()
    return SparkSession.builder.appName(app_name).getOrCreate()


def _log_no_raised_errors() -> None:
    """Turns off, without -v, the logs of errors that Py4J and PySpark raise as well."""
    from pyspark.logger import PySparkLogger

    if os.environ.get("MQSIEVE_LOG_LEVEL") != "info":
        logging.getLogger().addFilter(lambda record: record.module != "java_gateway")
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _ended_if_interrupted() -> Iterator[None]:
    """Ends Java if its start is interrupted: it would wait for ever. PySpark keeps it in a local variable only."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        for frame, _ in walk_tb(interrupt.__traceback__):
            for value in frame.f_locals.values():
                if isinstance(value, subprocess.Popen):
                    value.terminate()
        raise


@contextmanager
def _stderr_of_java() -> Iterator[None]:
    """Sends the stderr of Java and its Python workers to spark.log in CACHE, unless the user asked for it with -v.

    Who may not write there, as in an installation of somebody else's, has no such log.
    """
    if os.environ.get("MQSIEVE_LOG_LEVEL") == "info":
        yield
        return
    sys.stderr.flush()
    shown = os.dup(2)
    try:
        try:
            CACHE.mkdir(parents=True, exist_ok=True)
            log = (CACHE / "spark.log").open("w")
        except OSError:
            log = open(os.devnull, "w")  # noqa: SIM115
        with log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(shown, 2)
        os.close(shown)


def _local_options() -> list[str]:
    """spark-submit's options for one machine: the defaults, then the user's."""
    log_settings = (PROJECT / "conf" / "log4j2.properties").as_uri()
    given = given_spark_options()
    defaults = [
        "--driver-class-path", os.pathsep.join(map(str, delta_jars())),
        "--driver-java-options", f"-Dlog4j2.configurationFile={log_settings}",
        "--conf", f"spark.sql.warehouse.dir={CACHE / 'spark-warehouse'}",
    ]  # fmt: skip
    if "--properties-file" not in given:
        defaults += ["--properties-file", str(PROJECT / "conf" / "local.conf")]
    return [*defaults, *given]


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        raise UsageError(
            f"this needs Spark, and Spark needs Java {OLDEST_JAVA} or newer, which was not found: install it "
            f"(e.g. apt-get install openjdk-{OLDEST_JAVA}-jre-headless) or set JAVA_HOME"
        )
    # The Java that PATH or JAVA_HOME names: Spark starts it, too.
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    version = _JAVA_VERSION.search(printed)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise UsageError(
            f"this needs Spark, and Spark needs Java {OLDEST_JAVA} or newer, but {java} is version "
            f"{version[1] if version else 'unknown'}: install Java {OLDEST_JAVA} or set JAVA_HOME to it"
        )


# The files that travel to a cluster with a job: Delta's jars, and mqsieve's packages.
#
# Each package is an archive of its own that Spark unpacks, under the package's name, in the working directory of every
# executor and of a driver on the cluster (``--deploy-mode cluster``), which Python searches for modules there. Compiled
# kernels travel along, since Numba only finds them next to an unpacked module: without them each worker compiles for
# most of a minute.


PACKAGES = ("mqsieve",) if IS_PACKAGE else ("filtering", "schemas", "answers", "jobs", "conf")
_COMPILED = (".nbi", ".nbc")


def code_archives() -> list[str]:
    """Writes the archives to CACHE. Returns ``URI#name`` of each, as --archives wants them."""
    root = PROJECT.parent if IS_PACKAGE else PROJECT
    CACHE.mkdir(parents=True, exist_ok=True)
    return [f"{_archive(root / name, CACHE / f'{name}.zip').as_uri()}#{name}" for name in PACKAGES]


def _archive(package: Path, archive: Path) -> Path:
    beside = archive.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(package.rglob("*")):
            is_code = path.is_file() and path.parent.name != "__pycache__"
            if is_code or path.suffix in _COMPILED:
                file.write(path, path.relative_to(package))
    beside.replace(archive)
    return archive


if __name__ == "__main__":
    try:
        print(",".join(jar.as_uri() for jar in delta_jars()))
        print(",".join(code_archives()))
    except UsageError as error:
        print(f"mqsieve: {error}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
