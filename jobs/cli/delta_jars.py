"""Downloads Delta's jars, which Spark needs for Delta tables, once, and checks their digests.

They come from Maven Central, or from the repository in the environment variable MQSIEVE_MAVEN.
"""

from __future__ import annotations

import hashlib
import os
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from schemas.errors import UsageError

PROJECT = Path(__file__).resolve().parent.parent.parent
JARS = PROJECT / ".cache" / "jars"
CENTRAL = "https://repo1.maven.org/maven2"
SECONDS = 60


def delta_jars() -> list[Path]:
    """The jars that conf/delta_jars.txt lists. Raises UsageError if one cannot be downloaded."""
    listed = [line.split() for line in (PROJECT / "conf" / "delta_jars.txt").read_text("ascii").splitlines()]
    missing = [(digest, path) for digest, path in listed if not _file(path).exists()]
    if missing:
        print("mqsieve: first use of Spark: downloading Delta's jars", file=sys.stderr)
        JARS.mkdir(parents=True, exist_ok=True)
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
