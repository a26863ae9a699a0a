"""The real broker's answers, as shipped in tests/cases."""

from __future__ import annotations

from functools import cache
from typing import Any

from filtering import sql92
from filtering.rocketmq_version import NEWEST, TEXT_SEARCHES_SINCE, RocketMQVersion
from tests.unit.broker import cases

FILES = ("sql92_handmade", "sql92_matrix", "sql92_fuzz")

compiled = cache(sql92.CompiledExpression)
"""An expression, compiled once for all tests."""


@cache
def expressions(version: RocketMQVersion = NEWEST) -> list[dict[str, Any]]:
    """Each expression with ``id``, ``compiles`` and its ``cases`` of ``properties`` and ``result``.

    The answers are those of brokers of a version: before the text searches, those of versions.jsonl count.
    """
    known = _expressions() + _quirks()
    if version >= TEXT_SEARCHES_SINCE:
        return known
    before = {row["id"]: row for row in cases("versions")}
    return [before.get(row["id"], row) for row in known]


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
