"""The files that travel to a cluster with a job: Delta's jars, and mqsieve's packages.

Each package is an archive of its own that Spark unpacks, under the package's name, in the working directory of every
executor and of a driver on the cluster (``--deploy-mode cluster``), which Python searches for modules there. Compiled
kernels travel along, since Numba only finds them next to an unpacked module: without them each worker compiles for
most of a minute. Run as a program it prints two lines, the URIs of the jars and those of the archives, joined by
commas.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

from jobs.cli.application import ExitCode
from jobs.cli.session import CACHE, PROJECT, delta_jars
from schemas.errors import UsageError
from schemas.version import IS_PACKAGE

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
