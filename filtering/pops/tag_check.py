"""Which of the messages that pops handed out are dropped by their tags.

The broker compares hashes of tags with the subscription of the request. Then the proxy or the client compares the tags
themselves, with the same subscription. No record has it: it is the one in force, or that of another client of the
group. So a message is certain only if all of the subscriptions that could have handed it out decide alike.

Source: PopMessageProcessor, PopMessageResultFilterImpl, PullAPIWrapper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.frozen import frozen
from filtering.subscriptions.subscription_row import CompiledSubscription
from filtering.tags_code import tags_codes

Mask = NDArray[np.bool_]


@frozen(eq=False)
class TagCheck:
    """Of some messages: which are dropped, and of which that is not known.

    ``is_in_force``: whether it was the subscription in force that handed it out, as far as clients are known.
    """

    is_dropped: Mask
    is_uncertain: Mask
    is_in_force: Mask


def check_tags(
    tags: pa.ChunkedArray,
    in_force: CompiledSubscription,
    others: Sequence[CompiledSubscription] = (),
    at_other_times: Sequence[CompiledSubscription] = (),
) -> TagCheck:
    """What becomes of messages with these ``tags`` (a text or null each), which pops handed out.

    ``others``: the subscriptions of clients that do not have the one in force. If the clients decide differently, the
    subscription in force decides. A message whose hash is in none of them was handed out by a request with another
    subscription: a client changed its tags before it registered them, or events without client ids hide that clients
    disagree. It counts as received. Then requests may carry one of ``at_other_times``, so what these decide otherwise
    is uncertain, too.
    """
    masks = _Masks.of(tags, (in_force, *others))
    carries_other = ~masks.handed_out[0]
    dropped_in_force = ~carries_other & ~masks.kept[0]
    is_uncertain, is_unknown = masks.is_uncertain, ~masks.handed_out.any(axis=0)
    is_in_force = ~carries_other & ~is_uncertain
    is_dropped = np.where(is_uncertain, dropped_in_force, masks.is_dropped)
    if is_unknown.any() and at_other_times:
        is_uncertain = is_uncertain | _Masks.of(tags, (in_force, *others, *at_other_times)).is_uncertain
    return TagCheck(is_dropped, is_uncertain, is_in_force)


@frozen(eq=False)
class _Masks:
    """By subscription and message, whether it may have handed out the message, and whether its client then keeps it."""

    handed_out: Mask
    kept: Mask

    @classmethod
    def of(cls, tags: pa.ChunkedArray, subscriptions: Sequence[CompiledSubscription]) -> _Masks:
        hashes = np.array(tags_codes(tags))
        masks = zip(*(_masks(tags, hashes, subscription) for subscription in subscriptions), strict=True)
        return cls(*map(np.array, masks))

    @property
    def is_dropped(self) -> Mask:
        """Whether a subscription that may have handed out the message drops it."""
        return np.array((self.handed_out & ~self.kept).any(axis=0))

    @property
    def is_uncertain(self) -> Mask:
        """Whether subscriptions decide differently, or none may have handed out the message."""
        is_kept = np.array((self.handed_out & self.kept).any(axis=0))
        return np.array(is_kept == self.is_dropped)


def _masks(tags: pa.ChunkedArray, hashes: NDArray[np.int64], subscription: CompiledSubscription) -> tuple[Mask, Mask]:
    """Which messages the broker may hand out to a request with a subscription, and which its client then keeps."""
    if not subscription.tags_set:
        return np.ones(len(tags), bool), np.ones(len(tags), bool)
    is_kept = pc.is_in(tags, value_set=pa.array(subscription.tags_set, pa.string()))
    return np.isin(hashes, subscription.code_set or ()), np.array(is_kept)
