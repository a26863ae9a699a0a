"""Runs a job's module. An interrupt while its imports load ends it with the line that application.run prints later."""

import os
import signal
import sys

INTERRUPTED = "interrupted: no table is half written; run the same command again to continue"


def _end(*_: object) -> None:
    os.write(2, f"mqsieve: {INTERRUPTED}\n".encode())
    os._exit(130)


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as behind nohup
        signal.signal(signal.SIGINT, _end)
    import gc
    import runpy

    del sys.argv[0]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        gc.freeze()  # An ending Python searches all objects for cycles, which takes a tenth of a short command.
