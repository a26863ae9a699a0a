"""The real broker's answers, as shipped in tests/cases."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CASES = Path(__file__).parents[2] / "cases"
FILES = ("sql92_handmade", "sql92_matrix", "sql92_fuzz")


def expressions() -> Iterator[dict[str, Any]]:
    """Each expression with ``id``, ``compiles`` and its ``cases`` of ``properties`` and ``result``."""
    for name in FILES:
        text = gzip.decompress((CASES / f"{name}.jsonl.gz").read_bytes()).decode()
        for line in filter(None, text.split("\n")):
            answer = json.loads(line)
            yield answer if answer["compiles"] else {**answer, "cases": []}
    for number, line in enumerate((CASES / "quirks.jsonl").read_text().split("\n")):
        if line:
            quirk = json.loads(line)
            compiles = quirk["result"] != "COMPILE ERROR"
            case = {"properties": quirk["properties"] or {}, "result": quirk["result"]}
            yield {
                "id": f"q-{number:05}",
                "expression": quirk["expression"],
                "compiles": compiles,
                "cases": [case] if compiles else [],
            }
