"""The broker's state and stages against what the real broker answered."""

import gzip
import json
from pathlib import Path
from typing import Any

CASES = Path(__file__).parents[2] / "cases"


def cases(name: str) -> list[dict[str, Any]]:
    """The rows of a case file."""
    plain = CASES / f"{name}.jsonl"
    text = plain.read_text(encoding="utf-8") if plain.exists() else _unpacked(CASES / f"{name}.jsonl.gz")
    return [json.loads(line) for line in text.split("\n") if line]


def _unpacked(file: Path) -> str:
    return gzip.decompress(file.read_bytes()).decode()
