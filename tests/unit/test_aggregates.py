"""Sums of columns by group, of rows that come in parts."""

from __future__ import annotations

import pyarrow as pa

from schemas.delta.table_rows import sums, sums_of_parts

ROWS = pa.table(
    {"run": ["a", "b", "a", None, "a"], "queue": [0, 0, 1, 0, 0], "n": [1, 2, 3, 4, 5], "m": [0, 1, 0, 1, 0]}
)
SUMS = {("a", 0): {"n": 6, "m": 0}, ("a", 1): {"n": 3, "m": 0}, ("b", 0): {"n": 2, "m": 1}, (None, 0): {"n": 4, "m": 1}}


def test_sums_by_two_columns() -> None:
    assert sums(ROWS, ["run", "queue"], ["n", "m"]) == SUMS


def test_a_group_may_be_in_several_parts() -> None:
    parts = (ROWS.slice(start, 2) for start in (0, 2, 4, 6))
    assert sums_of_parts(parts, ["run", "queue"], ["n", "m"]) == SUMS
