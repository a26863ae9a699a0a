"""A small log of a real broker, replayed: the warehouse that the notebooks look at."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jobs import nightly

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

CAPTURE = Path(__file__).parents[1] / "tests" / "cases" / "captures" / "small"
_folder = tempfile.TemporaryDirectory(prefix="mqsieve-notebooks-", ignore_cleanup_errors=True)


def run_nightly(name: str, *options: object) -> str:
    """Runs nightly into a new warehouse, and returns its folder, which goes when Python ends."""
    warehouse = f"{_folder.name}/{name}"
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        nightly.main([*map(str, options), "--warehouse", warehouse])
    return warehouse


def bars(counts: pd.DataFrame) -> Styler:
    """Counts as a table with a bar in each cell."""
    return counts.style.set_uuid("bars").bar(color="#8fb3d9", vmin=0)


@cache
def small_warehouse() -> str:
    """The folder of the warehouse of the first command in README.md."""
    return run_nightly(
        "small",
        *("--store", CAPTURE / "store"),
        *("--subscriptions", CAPTURE / "subscription_events.jsonl"),
        *("--broker-config", CAPTURE / "broker.conf"),
    )
