"""What could not be decoded, by file and reason."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from schemas.answers.facts import BrokerFacts
from schemas.delta.table_rows import tuples
from schemas.quarantine import QUARANTINE


@dataclass(frozen=True)
class Quarantined:
    """Pieces of one file that could not be decoded for one reason; ``new`` of them were read in the last night.

    ``first``: the offset in a commitlog, or the line of a text file, of the first piece.
    """

    source_file: str
    reason: str
    pieces: int
    new: int
    first: int


def quarantined(facts: BrokerFacts, run: str) -> list[Quarantined]:
    """All of it, by file and reason. ``run``: that of the last night."""
    columns = ("source_file", "reason", "offset", "run")
    pieces: defaultdict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for file, reason, offset, met_in in tuples(facts.rows(QUARANTINE, columns), *columns):
        pieces[file, reason].append((offset, met_in))
    before = max((night.run for night in facts.nights if night.run < run), default="")
    return [
        Quarantined(file, reason, len(found), sum(before < met_in <= run for _, met_in in found), min(found)[0])
        for (file, reason), found in sorted(pieces.items())
    ]
