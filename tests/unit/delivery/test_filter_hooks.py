"""Users' own filter hooks: their file, which messages they see, and what happens if they fail."""

import sys
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from filtering.delivery.delivery_blocks import MatchSet, MatchSets
from filtering.delivery.filter_hooks import ENTRY_COLUMNS, FunctionHook, Hook, after_hooks
from filtering.matcher import packed_bits
from jobs.night.inputs import FilterHook, check_groups, read_filter_hooks
from schemas.errors import UsageError

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


# The file of --filter-hooks.


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("- group: cg_all_orders", "hook 1: a hook has group:, topic: and either predicate: or function:"),
        ("- {group: g, predicate: a}", "hook 1: topic: is missing"),
        ("- {group: g, topic: T, predicate: a, function: b}", "either predicate: or function:"),
        ("- {group: g, topic: T, predicates: a}", "either predicate: or function:"),
        ("group: g", "is not a list"),
        ("- [", "not YAML"),
        ("- {group: g, topic: T, function: 'no.such:thing'}", "no function no.such:thing: No module named 'no'"),
        ("- {group: g, topic: T, function: 'posixpath:odd'}", "has no attribute 'odd'; write module:"),
        ("- {group: g, topic: T, function: 'posixpath:sep'}", "is not a function"),
    ],
)
def test_an_entry_that_is_no_hook(tmp_path: Path, hook: str, message: str) -> None:
    (tmp_path / "hooks.yaml").write_text(hook)
    with pytest.raises(UsageError, match=message):
        read_filter_hooks(tmp_path / "hooks.yaml")


def test_a_group_without_a_subscription() -> None:
    hook = FilterHook("cg_nobody", "TagLab", "true", None)
    with pytest.raises(UsageError, match="cg_nobody on TagLab: the group has no subscription"):
        check_groups([hook], [("cg_nobody", "OrderEvents")])


def test_a_changed_hook_is_another_input(tmp_path: Path) -> None:
    entry = "- {group: g, topic: T, predicate: queue_id = 0}\n- {group: g, topic: T, function: 'my_hook:f'}"
    (tmp_path / "hooks.yaml").write_text(entry)
    seen = []
    for code in ("f = print", "f = print", "f = repr"):
        (tmp_path / "my_hook.py").write_text(code)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(tmp_path)
            patch.delitem(sys.modules, "my_hook", raising=False)
            seen.append(repr(read_filter_hooks(tmp_path / "hooks.yaml")))
    assert seen[0] == seen[1] != seen[2]
    (tmp_path / "hooks.yaml").write_text(entry.replace("queue_id = 0", "queue_id = 1"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        assert repr(read_filter_hooks(tmp_path / "hooks.yaml")) != seen[2]
