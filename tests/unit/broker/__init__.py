"""The broker's state and stages against what the real broker answered."""

import json
from pathlib import Path
from typing import Any

CASES = Path(__file__).parents[2] / "cases"


def cases(name: str) -> list[dict[str, Any]]:
    """The rows of a case file."""
    text = (CASES / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]
