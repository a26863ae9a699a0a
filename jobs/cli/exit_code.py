"""Exit codes of jobs."""

from enum import IntEnum


class ExitCode(IntEnum):
    """0 done · 1 failed · 2 usage or configuration · 3 a check failed · 4 lost a commit race · 130 interrupted."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CHECK_FAILED = 3
    LOST_RACE = 4
    INTERRUPTED = 130


class CheckFailed(Exception):
    """A check found failures. The message says how many."""
