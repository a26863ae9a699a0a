"""In a worker's PYTHONPATH: the first data file that any worker closes is the last thing that this worker does.

Each closed file is a line in the file MQSIEVE_TEST_CLOSED: the number of the task, that of its attempt from 0, and
whether the worker ended then.
"""

import os
import signal
from typing import Any

CLOSED = os.environ["MQSIEVE_TEST_CLOSED"]


def _after_fork() -> None:
    from pyspark import TaskContext

    from schemas.delta.table import DataFileWriter

    close = DataFileWriter.close

    def closed(writer: Any) -> Any:
        files = close(writer)
        try:
            os.close(os.open(CLOSED, os.O_CREAT | os.O_EXCL))
            is_first = True
        except FileExistsError:
            is_first = False
        task: Any = TaskContext.get()
        with open(CLOSED, "a") as lines:
            lines.write(f"{task.partitionId()} {task.attemptNumber()} {is_first}\n")
        if is_first:
            os.kill(os.getpid(), signal.SIGKILL)
        return files

    DataFileWriter.close = closed  # type: ignore[assignment, method-assign]


os.register_at_fork(after_in_child=_after_fork)
