"""The real broker's answers, as shipped in tests/cases."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from filtering import sql92

CASES = Path(__file__).parents[2] / "cases"
FILES = ("sql92_handmade", "sql92_matrix", "sql92_fuzz")


compiled = cache(sql92.CompiledExpression)
"""An expression, compiled once for all tests."""


@cache
def expressions() -> list[dict[str, Any]]:
    """Each expression with ``id``, ``compiles`` and its ``cases`` of ``properties`` and ``result``."""
    return _expressions() + _quirks()


def _expressions() -> list[dict[str, Any]]:
    lines = [
        json.loads(line)
        for name in FILES
        for line in gzip.decompress((CASES / f"{name}.jsonl.gz").read_bytes()).decode().split("\n")
        if line
    ]
    return [line if line["compiles"] else {**line, "cases": []} for line in lines]


def _quirks() -> list[dict[str, Any]]:
    quirks = [json.loads(line) for line in (CASES / "quirks.jsonl").read_text(encoding="utf-8").split("\n") if line]
    compiles = [quirk["result"] != "COMPILE ERROR" for quirk in quirks]
    return [
        {
            "id": f"q-{number:05}",
            "expression": quirk["expression"],
            "compiles": fine,
            "cases": [{"properties": quirk["properties"] or {}, "result": quirk["result"]}] if fine else [],
        }
        for number, (quirk, fine) in enumerate(zip(quirks, compiles, strict=True))
    ]
