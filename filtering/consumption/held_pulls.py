"""Changes of a subscription while the broker holds a pull: it is not known which filter some messages met.

The broker answers the held pull by the new subscription, with what waits for it in the queue. If the old one was a
list of tags, the client then drops what has other tags. If the pull brought its own subscription, this one counts until
the pull ends. Sources: PullRequestHoldService, PullMessageProcessor, PullAPIWrapper.
"""

from __future__ import annotations

from collections.abc import Sequence

from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import UncertainChange
from filtering.predicate import TRUE, And, Or, Predicate
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.subscription_row import SubscriptionRow

HELD_MESSAGES = 5_000
"""ms: how long messages that did not match may wait in a held pull. A changed subscription may then filter them."""
DISAGREE = "two clients of the group seem to disagree"
HELD_PULL = 20_000
"""ms: how long the broker holds a pull in an empty queue: for 15 s, and until it looks for new messages again."""


def uncertain_change(
    before: SubscriptionRow, old: MessageFilter, new: MessageFilter, at: int
) -> UncertainChange | None:
    """The messages that may have met a held pull when a subscription changed at ``at`` (ms); None if none may.

    ``old`` is the filter of the subscription ``before``, ``new`` that of the changed one.
    """
    matches = _delivered(new)
    if before.sent_with_pull:
        asked = old.expression if old.tags is TRUE else old.tags
        was = _delivered(old)
        return None if was == matches else UncertainChange(*before.key, was, matches, at, at + HELD_PULL, asked, at)
    if old.client_tags is not TRUE and old.client_tags != new.client_tags:
        both = And((matches, old.client_tags))
        return UncertainChange(*before.key, both, matches, at, at + HELD_PULL, old.tags, at)
    if not is_tag_type(before.expression_type) and old.expression != matches:
        return UncertainChange(*before.key, old.expression, matches, at - HELD_MESSAGES, at, changed_at=at)
    return None


def undecided_between(
    filters: Sequence[MessageFilter], stored_from: int, stored_to: int, changed_at: int
) -> UncertainChange:
    """The messages stored in [``stored_from``, ``stored_to``) (ms) that only some of the filters of a group match.

    ``changed_at``: when the second of them replaced the first (ms).
    """
    matches = tuple(_delivered(each) for each in filters)
    return UncertainChange(
        *filters[0].key, And(matches), Or(matches), stored_from, stored_to, changed_at=changed_at, reason=DISAGREE
    )


def _delivered(of: MessageFilter) -> Predicate:
    return of.expression if of.tags is TRUE else And((of.tags, of.expression, of.client_tags))
