"""docs/FILTERS.md names the cases that test its clauses, and they exist."""

import re
from pathlib import Path

from tests.unit.sql92.cases import expressions

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "FILTERS.md").read_text()
CLAUSES = re.findall(r"^- \*\*(\d+\.\d+)\*\* (.*)$", TEXT, re.MULTILINE)


def test_clauses_are_numbered_once_and_in_order() -> None:
    numbers = [tuple(map(int, number.split("."))) for number, _ in CLAUSES]
    assert len(numbers) > 40
    assert numbers == sorted(set(numbers))


def test_every_clause_names_cases_or_tests_that_exist() -> None:
    known = {answer["id"] for answer in expressions()}
    for number, clause in CLAUSES:
        cases = re.findall(r"`([hmfq]-\d+)`", clause)
        tests = re.findall(r"`(tests/[\w/.]+\.py)`", clause)
        assert cases or tests, number
        assert set(cases) <= known, number
        assert all((ROOT / test).exists() for test in tests), number
