"""Python's garbage collector while many long-lived objects are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Pauses collections inside the block: they take a quarter of the time of 10,000 compilations and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collect_rarely() -> None:
    """For a whole process. Python's defaults are for small heaps: 10,000 groups spent a sixth of a night on them.

    A night of 10,000 groups makes two million objects. A thousand are in cycles that nothing else refers to.
    """
    gc.set_threshold(10_000_000, 50, 100)


def collect_young() -> None:
    """Frees what was made since the last collection and is in a cycle, such as PyArrow's metadata of Parquet files.

    These are few objects, so they do not start a collection, but of some MiB in each night.
    """
    gc.collect(0)
