"""Record batches are cut into parts of one size."""

from __future__ import annotations

import pyarrow as pa
import pytest

from schemas.arrow_batches import as_dictionaries, split


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [([], []), ([3], [3]), ([4], [4]), ([5], [4, 1]), ([4, 1], [4, 1]), ([1, 2, 6], [4, 4, 1]), ([9, 3], [4, 4, 4])],
)
def test_split_keeps_all_rows_in_order(sizes: list[int], parts: list[int]) -> None:
    numbers = iter(range(sum(sizes)))
    batches = [pa.record_batch({"n": [next(numbers) for _ in range(size)]}) for size in sizes]
    rows_of_parts = [[n for batch in part for n in batch["n"].to_pylist()] for part in split(batches, 4)]
    assert [len(part) for part in rows_of_parts] == parts
    assert [n for part in rows_of_parts for n in part] == list(range(sum(sizes)))


def test_rows_become_dictionaries_with_their_maps() -> None:
    maps = pa.array([[("a", "b")], None, [], [("c", "d"), ("e", "f")]], pa.map_(pa.string(), pa.string()))
    rows = pa.table({"map": pa.chunked_array([maps, maps]), "number": range(8)}).slice(1, 6)
    assert as_dictionaries(rows) == rows.to_pylist(maps_as_pydicts="strict")
    assert as_dictionaries(rows.slice(0, 0)) == []
