from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest

from filtering.replay import bit_planes
from filtering.replay.delivered_sets import Delivered, DeliveredSets
from filtering.replay.delivery import Outcome
from filtering.replay.filter_hooks import Column, Function, after_hooks

ROWS = 6
ENTRIES = pa.record_batch(
    {"offset": list(range(ROWS)), "odd": [False, True] * 3, "unknown": [None, True, None, True, False, True]}
)


def to(filters: tuple[int, ...], *positions: int) -> Delivered:
    flags = np.isin(np.arange(ROWS), positions)
    return Delivered(filters, bit_planes.pack(flags), len(positions), ROWS)


def outcome(*delivered: Delivered) -> Outcome:
    counts = np.zeros(4, np.int64)
    for shared in delivered:
        counts[list(shared.filters)] = shared.count
    none = DeliveredSets.of([], ROWS)
    return Outcome(
        DeliveredSets.of(delivered, ROWS), none, none, counts, counts, counts, counts * 0, counts * 0, counts * 0
    )


def shown(shared: Iterable[Delivered]) -> list[tuple[tuple[int, ...], list[int]]]:
    assert all(each.count == len(each.positions) for each in shared)
    return [(each.filters, each.positions.tolist()) for each in shared]


def test_hooks_part_the_filters_that_shared_messages() -> None:
    before = outcome(to((0, 1, 2), *range(ROWS)), to((3,), 1, 2, 5), to((3,), 4))
    odd, unknown = Column("odd"), Column("unknown")
    after = after_hooks(before, {1: (odd,), 2: (odd, unknown), 3: (unknown,)}, ENTRIES)
    assert shown(after.delivered) == [((0,), [0, 1, 2, 3, 4, 5]), ((1,), [1, 3, 5]), ((2,), [1, 3, 5]), ((3,), [1, 5])]
    assert shown(after.dropped_by_hook) == [((1,), [0, 2, 4]), ((2,), [0, 2, 4]), ((3,), [2]), ((3,), [4])]


def test_counts_follow() -> None:
    after = after_hooks(outcome(to((0, 1), *range(ROWS))), {1: (Column("odd"),)}, ENTRIES)
    assert after.delivered_count.tolist() == [6, 3, 0, 0]
    assert after.dropped_by_hook_count.tolist() == [0, 3, 0, 0]
    assert after.passed_stage2.tolist() == [6, 6, 0, 0]


def test_a_hook_that_keeps_all_or_nothing() -> None:
    every = Function("m:every", lambda entries: pa.array([True] * entries.num_rows), ("offset",))
    none = Function("m:none", lambda entries: pa.nulls(entries.num_rows, pa.bool_()), ("offset",))
    after = after_hooks(outcome(to((0, 1), *range(ROWS))), {0: (every,), 1: (none,)}, ENTRIES)
    assert shown(after.delivered) == [((0,), [0, 1, 2, 3, 4, 5])]
    assert shown(after.dropped_by_hook) == [((1,), [0, 1, 2, 3, 4, 5])]


def test_a_function_sees_only_its_messages_and_columns() -> None:
    seen = []

    def keeps_large(entries: pa.RecordBatch) -> pa.BooleanArray:
        seen.append(entries.to_pydict())
        return pa.array([value > 2 for value in entries["offset"].to_pylist()])

    hook = Function("m:keeps_large", keeps_large, ("offset",))
    after_hooks(outcome(to((0,), 1, 3)), {0: (hook,)}, ENTRIES)
    assert seen == [{"offset": [1, 3]}]


@pytest.mark.parametrize("answer", [[True], pa.array([True]), pa.array([1] * ROWS)])
def test_a_function_that_answers_something_else(answer: object) -> None:
    with pytest.raises(ValueError, match="m:f must return a BooleanArray of 6 values, one a message"):
        Function("m:f", lambda entries: answer, ("offset",))(ENTRIES)  # type: ignore[arg-type,return-value]
