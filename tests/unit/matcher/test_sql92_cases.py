"""The matcher against the real broker's answers to SQL92 expressions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from filtering.matcher import Matcher, match
from filtering.sql92 import compile

CASES = Path(__file__).parents[2] / "cases"
MAP = pa.map_(pa.string(), pa.string())


def bit(bits, predicate, row):
    return (bits[predicate, row // 64] >> np.uint64(row % 64)) & np.uint64(1)


def test_every_expression_over_every_message_gives_the_brokers_answer():
    lines = [
        json.loads(line)
        for path in sorted(CASES.glob("sql92_*.jsonl.gz"))
        for line in gzip.decompress(path.read_bytes()).decode().split("\n")
        if line
    ]
    lines = [line for line in lines if line["compiles"]]
    assert len(lines) > 5_000
    rows: dict[tuple[tuple[str, str], ...], int] = {}
    asked = [
        (expression, rows.setdefault(tuple(sorted(case["properties"].items())), len(rows)), case["result"])
        for expression, line in enumerate(lines)
        for case in line["cases"]
    ]
    compiled = [compile(line["expression"]) for line in lines]
    properties = pa.array(rows, MAP)
    is_true = Matcher([expression.predicate for expression in compiled]).match(properties).bits
    is_error = Matcher([expression.error_predicate for expression in compiled]).match(properties).bits
    wrong = [
        (lines[expression]["expression"], row, result)
        for expression, row, result in asked
        if (bit(is_true, expression, row), bit(is_error, expression, row)) != (result == "TRUE", result == "ERROR")
    ]
    assert not wrong, wrong[:10]


def test_match_takes_expressions():
    properties = pa.record_batch({"price": ["5", "12", None, "x"]})
    indptr, rows = match(properties, ["price > 10", "price IS NULL OR price = '5'"]).pairs()
    assert (indptr.tolist(), rows.tolist()) == ([0, 1, 3], [1, 0, 2])
