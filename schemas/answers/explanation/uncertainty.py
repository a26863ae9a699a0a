"""Says when it is not known which of two subscriptions filtered a message that was stored just after the change."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from filtering.delivery.message_filter import delivers
from filtering.predicate import TRUE
from filtering.predicate_value import holds
from filtering.pulls.pull_simulation import DEFAULT_BATCH
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.explanation.found_messages import FoundMessage, read
from schemas.answers.explanation.message_deliveries import Delivery, deliveries_of
from schemas.answers.explanation.pulls_of_message import Pulled, earlier_filter
from schemas.answers.facts import BrokerFacts
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.table import Table
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


def in_lost_pull(facts: BrokerFacts, message: FoundMessage, pull: Pulled, delivery: Delivery) -> str | None:
    """Why the client may have lost the pull that brought the message; None if it did not.

    A Java client up to 5.2.0 fails on a message without a body, and its listener gets no message of the pull.
    """
    if pull.config.version.clients_take_empty_bodies:
        return None
    queue = [one_of("topic", [message.topic]), one_of("queue_id", [message.queue_id])]
    same_run = partial(_received_offsets, facts, delivery)
    empty = same_run(COMMITLOG, [*queue, one_of("body_length", [0])])
    others = (offset for offset in empty if offset != message.queue_offset)
    if message.queue_offset in empty:
        which = "it has no body"
    else:
        for offset in sorted(others, key=lambda each: abs(each - message.queue_offset)):
            low, high = sorted((offset, message.queue_offset))
            between = [*queue, within("queue_offset", low, high + 1)]
            if len(same_run(CONSUMEQUEUE, between)) <= DEFAULT_BATCH:
                which = f"offset {offset:,}, which may have been in the same pull, has no body"
                break
        else:
            return None
    return f"{which}: a Java client up to 5.2.0 fails on such a pull, and its listener gets no message of it"


def _received_offsets(facts: BrokerFacts, delivery: Delivery, table: Table, where: Sequence[Condition]) -> set[int]:
    """The queue offsets of some rows whose messages the group received as in ``delivery``."""
    columns = ["commitlog_offset", "topic", "queue_offset", "store_timestamp"]
    rows = facts.rows(table, columns, where).to_pylist()
    found = deliveries_of(facts, rows)
    return {row["queue_offset"] for row in rows if any(map(delivery.is_alike, found.get(row["commitlog_offset"], ())))}


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
