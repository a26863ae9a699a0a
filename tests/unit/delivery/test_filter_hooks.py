"""Users' own filter hooks: which messages they see, and what happens if they fail."""

from collections.abc import Iterable
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pytest

from filtering.delivery.delivery_blocks import MatchSet, MatchSets
from filtering.delivery.filter_hooks import ENTRY_COLUMNS, FunctionHook, Hook, after_hooks
from filtering.matcher import packed_bits

ROWS = 6
ENTRIES = pa.record_batch(
    {name: list(range(ROWS)) for name in ENTRY_COLUMNS}
    | {"odd": [False, True] * 3, "unknown": [None, True, None, True, False, True]}
)


def to(windows: tuple[int, ...], *positions: int) -> MatchSet:
    flags = np.isin(np.arange(ROWS), positions)
    return MatchSet(windows, packed_bits.pack(flags), len(positions), ROWS)


def kept_and_dropped(hooks: dict[int, tuple[Hook, ...]], *delivered: MatchSet) -> tuple[object, object]:
    kept, dropped = after_hooks(MatchSets.of(delivered, ROWS), hooks, ENTRIES)
    return shown(kept), shown(dropped)


def shown(sets: Iterable[MatchSet]) -> list[tuple[tuple[int, ...], list[int]]]:
    match_sets = list(sets)
    assert all(each.count == len(each.positions) for each in match_sets)
    return [(each.windows, each.positions.tolist()) for each in match_sets]


def test_hooks_part_the_windows_that_shared_messages() -> None:
    odd, unknown = itemgetter("odd"), itemgetter("unknown")
    hooks: dict[int, tuple[Hook, ...]] = {1: (odd,), 2: (odd, unknown), 3: (unknown,)}
    kept, dropped = kept_and_dropped(hooks, to((0, 1, 2), *range(ROWS)), to((3,), 1, 2, 5), to((3,), 4))
    assert kept == [((0,), [0, 1, 2, 3, 4, 5]), ((1,), [1, 3, 5]), ((2,), [1, 3, 5]), ((3,), [1, 5])]
    assert dropped == [((1,), [0, 2, 4]), ((2,), [0, 2, 4]), ((3,), [2]), ((3,), [4])]


def test_a_hook_that_keeps_all_or_nothing() -> None:
    every = FunctionHook("m:every", lambda entries: pa.array([True] * entries.num_rows))
    none = FunctionHook("m:none", lambda entries: pa.nulls(entries.num_rows, pa.bool_()))
    kept, dropped = kept_and_dropped({0: (every,), 1: (none,)}, to((0, 1), *range(ROWS)))
    assert kept == [((0,), [0, 1, 2, 3, 4, 5])]
    assert dropped == [((1,), [0, 1, 2, 3, 4, 5])]


def test_a_function_sees_only_its_messages_and_the_documented_columns() -> None:
    seen = []

    def keeps_large(entries: pa.RecordBatch) -> pa.BooleanArray:
        seen.append(entries.to_pydict())
        return pa.array([value > 2 for value in entries["queue_offset"].to_pylist()])

    kept_and_dropped({0: (FunctionHook("m:keeps_large", keeps_large),)}, to((0,), 1, 3))
    assert seen == [{name: [1, 3] for name in ENTRY_COLUMNS}]


@pytest.mark.parametrize("answer", [[True], pa.array([True]), pa.array([1] * ROWS)])
def test_a_function_that_answers_something_else(answer: object) -> None:
    with pytest.raises(ValueError, match="m:f must return a BooleanArray of 6 values, one per message"):
        FunctionHook("m:f", lambda entries: answer)(ENTRIES)


def test_a_function_that_fails_is_named() -> None:
    def boom(entries: pa.RecordBatch) -> pa.BooleanArray:
        raise KeyError("region")

    batch = pa.record_batch({name: pa.array([1]) for name in ENTRY_COLUMNS})
    with pytest.raises(ValueError, match="the filter hook my_hooks:boom failed: KeyError: 'region'"):
        FunctionHook("my_hooks:boom", boom)(batch)
