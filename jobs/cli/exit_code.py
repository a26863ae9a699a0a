"""Exit codes of jobs."""

from enum import IntEnum


class ExitCode(IntEnum):
    """0 done · 1 failed · 2 usage or configuration · 3 a check failed · 4 lost a commit race · 130 interrupted.

    141: the reader of the output closed it, as ``head`` does; a shell has this code for other programs then.
    """

    DONE = 0
    FAILED = 1
    USAGE = 2
    CHECK_FAILED = 3
    LOST_RACE = 4
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


class CheckFailed(Exception):
    """A check found failures. The message says how many."""
