"""What a person at a Python prompt gets wrong: an error that names it, never a wrong answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from filtering import matcher, sql92
from schemas import warehouse
from schemas.answers.explanation.why import why

BATCH = pa.RecordBatch.from_pydict({"price": ["55", "5"]})
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a number as a property": (
        lambda: sql92.compile("price > 5").evaluate({"price": 55}),  # type: ignore[dict-item]
        "properties are texts: price is 55 (int)",
    ),
    "NaN, as pandas has it": (
        lambda: sql92.compile("region = 'x'").evaluate({"region": float("nan")}),  # type: ignore[dict-item]
        "properties are texts: region is nan (float)",
    ),
    "no expression": (
        lambda: sql92.compile(None),  # type: ignore[arg-type]
        "an expression is a text, not NoneType",
    ),
    "one expression instead of a list": (
        lambda: matcher.match(BATCH, "price > 5"),
        "expressions must be a list of texts, not one text",
    ),
    "a number as a key": (
        lambda: why(None, 370),  # type: ignore[arg-type]
        "a message is named by a text, not by int",
    ),
    "a folder from a variable that is not set": (
        lambda: warehouse.open(None),  # type: ignore[arg-type]
        "expected str, bytes or os.PathLike object, not NoneType",
    ),
}


@pytest.mark.parametrize(("mistake", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError) as raised:
        mistake()
    assert str(raised.value) == message


def test_completion_of_the_entry_point_offers_what_is_for_users() -> None:
    assert dir(warehouse) == ["OpenWarehouse", "open"]


def test_help_of_match_needs_no_other_page() -> None:
    for word in ("RecordBatch", "StructArray", "MapArray", "counts()", "pairs()"):
        assert word in (matcher.match.__doc__ or "")
