"""What a client's own filter hooks drop of the messages that passed its tag check.

Source: PullAPIWrapper.processPullResult and executeHook, FilterMessageHook. Unlike there, a hook that
fails stops the run: RocketMQ would log it and keep the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.replay import bit_planes
from filtering.replay.delivered_sets import Delivered, DeliveredSets
from filtering.replay.delivery import Outcome

Hook = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Which of some entries the client keeps; null is no."""


@dataclass(frozen=True)
class Column:
    """The hook whose answers came with the entries, as a boolean column."""

    name: str

    def __call__(self, entries: pa.RecordBatch) -> pa.BooleanArray:
        return entries[self.name]


@dataclass(frozen=True)
class Function:
    """A hook of the user's, called with ``columns`` of the entries. Raises ValueError on any other answer."""

    name: str
    call: Hook
    columns: tuple[str, ...]

    def __call__(self, entries: pa.RecordBatch) -> pa.BooleanArray:
        kept = self.call(entries.select(list(self.columns)))
        if not isinstance(kept, pa.BooleanArray) or len(kept) != entries.num_rows:
            raise ValueError(
                f"the filter hook {self.name} must return a BooleanArray of {entries.num_rows} values, one a message"
            )
        return kept


def after_hooks(outcome: Outcome, hooks: Mapping[int, Sequence[Hook]], entries: pa.RecordBatch) -> Outcome:
    """``outcome`` of ``entries`` where the client of filter i has ``hooks[i]``, which all have to keep a message."""
    delivered: list[Delivered] = []
    dropped: list[Delivered] = []
    delivered_count, dropped_count = outcome.delivered_count.copy(), outcome.dropped_by_hook_count.copy()
    for shared in outcome.delivered:
        unhooked = tuple(i for i in shared.filters if i not in hooks)
        if unhooked:
            delivered.append(replace(shared, filters=unhooked))
        of_hooks: dict[tuple[Hook, ...], list[int]] = {}
        for i in shared.filters:
            if i in hooks:
                of_hooks.setdefault(tuple(hooks[i]), []).append(i)
        positions = shared.positions if of_hooks else None
        for chain, filters in of_hooks.items():
            kept = _kept(chain, entries if shared.count == shared.rows else entries.take(pa.array(positions)))
            delivered_count[filters] = np.count_nonzero(kept)
            dropped_count[filters] = np.count_nonzero(~kept)
            for chosen, into in ((kept, delivered), (~kept, dropped)):
                if chosen.any():
                    flags = np.zeros(shared.rows, bool)
                    flags[positions] = chosen
                    into.append(Delivered(tuple(filters), bit_planes.pack(flags), int(chosen.sum()), shared.rows))
    return replace(
        outcome,
        delivered=DeliveredSets.of(delivered, entries.num_rows),
        dropped_by_hook=DeliveredSets.of(dropped, entries.num_rows),
        delivered_count=delivered_count,
        dropped_by_hook_count=dropped_count,
    )


def _kept(hooks: Sequence[Hook], entries: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Each hook sees all of the entries."""
    kept = np.ones(entries.num_rows, bool)
    for hook in hooks:
        kept &= hook(entries).fill_null(False).to_numpy(zero_copy_only=False)
    return kept
