"""A client's own filter hooks, which may drop messages that passed its tag check.

Source: PullAPIWrapper.processPullResult and executeHook, FilterMessageHook. A hook that fails stops the run;
RocketMQ would log the failure and keep the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.delivery.delivery_blocks import MatchSet, MatchSets
from filtering.frozen import frozen
from filtering.matcher import packed_bits

ENTRY_COLUMNS = (
    "topic", "queue_id", "queue_offset", "commitlog_offset", "size", "tags_code", "store_timestamp", "filter_bit_map",
    "properties",
)  # fmt: skip
"""The columns that a hook sees: those of consumequeue, and the message's properties (a map of strings)."""

Hook = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Whether the client keeps each entry; null means no."""


@frozen
class FunctionHook:
    """A user's function over ENTRY_COLUMNS. Raises ValueError if it fails, or has not one boolean for each entry."""

    name: str
    call: Hook

    def __call__(self, entries: pa.RecordBatch) -> pa.BooleanArray:
        try:
            kept = self.call(entries.select(list(ENTRY_COLUMNS)))
        except Exception as error:
            raise ValueError(f"the filter hook {self.name} failed: {type(error).__name__}: {error}") from error
        if not isinstance(kept, pa.BooleanArray) or len(kept) != entries.num_rows:
            raise ValueError(
                f"the filter hook {self.name} must return a BooleanArray of {entries.num_rows} values, one per message"
            )
        return kept


def after_hooks(
    delivered: MatchSets, hooks: Mapping[int, Sequence[Hook]], entries: pa.RecordBatch
) -> tuple[MatchSets, MatchSets]:
    """Splits deliveries into kept and dropped ones. Window i has ``hooks[i]``; all of them must keep a message."""
    kept_sets: list[MatchSet] = []
    dropped_sets: list[MatchSet] = []
    for shared in delivered:
        unhooked = tuple(i for i in shared.windows if i not in hooks)
        if unhooked:
            kept_sets.append(replace(shared, windows=unhooked))
        windows_by_hooks: dict[tuple[Hook, ...], list[int]] = {}
        for i in shared.windows:
            if i in hooks:
                windows_by_hooks.setdefault(tuple(hooks[i]), []).append(i)
        positions = shared.positions
        for chain, windows in windows_by_hooks.items():
            kept = _kept(chain, entries if shared.count == shared.rows else entries.take(pa.array(positions)))
            for mask, sets in ((kept, kept_sets), (~kept, dropped_sets)):
                if mask.any():
                    flags = np.zeros(shared.rows, bool)
                    flags[positions] = mask
                    sets.append(MatchSet(tuple(windows), packed_bits.pack(flags), int(mask.sum()), shared.rows))
    return MatchSets.of(kept_sets, entries.num_rows), MatchSets.of(dropped_sets, entries.num_rows)


def _kept(hooks: Sequence[Hook], entries: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """The entries that all hooks keep. Every hook sees all entries."""
    kept = np.ones(entries.num_rows, bool)
    for hook in hooks:
        kept &= hook(entries).fill_null(False).to_numpy(zero_copy_only=False)
    return kept
