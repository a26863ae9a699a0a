"""Suggests a known name for a misspelt one. spark-submit.sh runs this file as a program: NAME FILE…"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar; None if no name is."""
    return next(iter(difflib.get_close_matches(name, list(known), 1)), None)


if __name__ == "__main__":
    print(nearest(sys.argv[1], (Path(file).stem.replace("_", "-") for file in sys.argv[2:])) or "")
