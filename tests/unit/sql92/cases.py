"""The real broker's answers, as shipped in tests/cases."""

from __future__ import annotations

from functools import cache
from typing import Any

from filtering import sql92
from tests.unit.broker import cases

FILES = ("sql92_handmade", "sql92_matrix", "sql92_fuzz")

compiled = cache(sql92.CompiledExpression)
"""An expression, compiled once for all tests."""


@cache
def expressions() -> list[dict[str, Any]]:
    """Each expression with ``id``, ``compiles`` and its ``cases`` of ``properties`` and ``result``."""
    return _expressions() + _quirks()


def _expressions() -> list[dict[str, Any]]:
    rows = [row for name in FILES for row in cases(name)]
    return [row if row["compiles"] else {**row, "cases": []} for row in rows]


def _quirks() -> list[dict[str, Any]]:
    quirks = cases("quirks")
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
