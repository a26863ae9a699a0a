"""``mqsieve JOB [options]``: spark-submit.sh, with the Python that has the package."""

from __future__ import annotations

import os
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as behind nohup
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends this process, and prints no stack trace.

from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

FOLDER = Path(__file__).resolve().parent


def main() -> NoReturn:
    script = FOLDER / "spark-submit.sh"
    if script.exists():
        spark = find_spec("pyspark")
        os.environ["MQSIEVE_PYTHON"] = sys.executable
        os.environ["MQSIEVE_PYSPARK"] = str(Path(spark.origin).parent) if spark and spark.origin else ""
    else:  # in the repository, where it finds both
        script = FOLDER.parent / script.name
    os.execvp("bash", ["bash", str(script), *sys.argv[1:]])  # noqa: S606, S607


if __name__ == "__main__":
    main()
