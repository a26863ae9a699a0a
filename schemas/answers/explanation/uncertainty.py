"""Says when it is not known which of two subscriptions filtered a message that was stored just after the change."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.delivery.message_filter import delivers
from filtering.explanation.pulls_of_message import Pulled, earlier_filter
from filtering.predicate import TRUE
from filtering.predicate_value import holds
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.explanation.found_messages import FoundMessage, read
from schemas.answers.facts import BrokerFacts
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.table_rows import Condition, one_of, within


def after_change(
    facts: BrokerFacts, message: FoundMessage, rows: Sequence[SubscriptionRow], pull: Pulled, is_delivered: bool
) -> str | None:
    """Why an earlier pull may have had the message in its answer, and what that changes; None if it did not.

    The broker may have answered a pull from before the change with it. If the pull brought its own subscription, this
    one filtered the message. Otherwise the client drops what its old tags do not name. The first message that matches
    the old subscription ends this pull.
    """
    before = earlier_filter(rows, pull)
    if pull.at != message.store_timestamp or before is None or before.valid_to is None:
        return None
    between = [
        one_of("topic", [message.topic]),
        one_of("queue_id", [message.queue_id]),
        within("queue_offset", below=message.queue_offset),
        within("store_timestamp", before.valid_to),
    ]
    if before.sent_with_pull:
        then = _by_the_old_filter(facts, message, before, between, is_delivered)
    else:
        then = _by_the_old_tags(facts, message, before, between) if is_delivered else None
    if then is None:
        return None
    seconds = (pull.at - before.valid_to) / 1000
    return (
        f"stored {seconds:.1f} s after the subscription changed: the broker may have answered an earlier pull with it, "
        f"and {then}"
    )


def _by_the_old_filter(
    facts: BrokerFacts, message: FoundMessage, before: SubscriptionRow, between: Sequence[Condition], is_delivered: bool
) -> str | None:
    # The broker does not notice an expression sent with a pull that does not compile, and lets every message pass.
    old = delivers(before) or TRUE
    if holds(old, message.properties) == is_delivered:
        return None
    offsets = facts.rows(CONSUMEQUEUE, ["commitlog_offset"], between)["commitlog_offset"].to_pylist()
    if any(holds(old, each.properties) for each in read(facts, offsets)):
        return None
    return f"{before.expression} then filtered it"


def _by_the_old_tags(
    facts: BrokerFacts, message: FoundMessage, before: SubscriptionRow, between: Sequence[Condition]
) -> str | None:
    if message.tags in (before.tags_set or ()):
        return None
    old = [*between, one_of("tags_code", before.code_set or ())]
    if facts.rows(CONSUMEQUEUE, ["queue_offset"], old).num_rows:
        return None
    return f"the client then drops what {before.expression} does not name"
