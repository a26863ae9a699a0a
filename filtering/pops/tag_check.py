"""Which of the messages that pops handed out are dropped by their tags.

The broker compares hashes of tags with the subscription of the request. Then the proxy or the client compares the tags
themselves, with the same subscription. No record has it: it is the one in force, or that of another client of the
group. So a message is certain only if all of the subscriptions that could have handed it out decide alike.

Source: PopMessageProcessor, PopMessageResultFilterImpl, PullAPIWrapper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.subscriptions.subscription_row import CompiledSubscription
from filtering.tags_code import tags_codes

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TagCheck:
    """Of some messages: which are dropped, and of which that is not known.

    ``is_of_other``: the request carried another subscription than the one in force.
    """

    is_dropped: Mask
    is_uncertain: Mask
    is_of_other: Mask


def check_tags(
    tags: pa.ChunkedArray, in_force: CompiledSubscription, others: Sequence[CompiledSubscription] = ()
) -> TagCheck:
    """What becomes of messages with these ``tags`` (a text or null each), which pops handed out.

    ``others``: the subscriptions of clients that do not have the one in force. A message whose hash is in none of them
    was handed out by a request with a subscription that no event names: it counts as received, but its tag may only
    share the hash of one that the request named. If the clients decide differently, the subscription in force decides.
    """
    hashes = np.array(tags_codes(tags))
    masks = [_masks(tags, hashes, subscription) for subscription in (in_force, *others)]
    handed_out, kept = (np.array(each) for each in zip(*masks, strict=True))
    is_kept, is_dropped = (handed_out & kept).any(axis=0), (handed_out & ~kept).any(axis=0)
    is_of_other = ~handed_out[0]
    is_uncertain = is_kept == is_dropped
    return TagCheck(np.where(is_uncertain, ~is_of_other & ~kept[0], is_dropped), is_uncertain, is_of_other)


def _masks(tags: pa.ChunkedArray, hashes: NDArray[np.int64], subscription: CompiledSubscription) -> tuple[Mask, Mask]:
    """Which messages the broker may hand out to a request with a subscription, and which its client then keeps."""
    if not subscription.tags_set:
        return np.ones(len(tags), bool), np.ones(len(tags), bool)
    is_kept = pc.is_in(tags, value_set=pa.array(subscription.tags_set, pa.string()))
    return np.isin(hashes, subscription.code_set or ()), np.array(is_kept)
