"""Says when it is not known whether a client dropped a message that the broker returned."""

from __future__ import annotations

from collections.abc import Sequence

from filtering.explanation.pulls_of_message import Pulled, earlier_tags
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.explanation.found_messages import FoundMessage
from schemas.answers.facts import BrokerFacts
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.table_rows import one_of, within


def after_change_of_tags(
    facts: BrokerFacts, message: FoundMessage, rows: Sequence[SubscriptionRow], pull: Pulled
) -> str | None:
    """Why the client may have dropped a message that came just after its list of tags changed; None if it did not.

    The broker may have answered a pull from before the change with it. The client drops from the answer what the old
    tags do not name. The first message with an old tag ends this pull.
    """
    before = earlier_tags(rows, pull)
    is_online = pull.at == message.store_timestamp
    if not is_online or before is None or before.valid_to is None or message.tags in (before.tags_set or ()):
        return None
    between = [
        one_of("topic", [message.topic]),
        one_of("queue_id", [message.queue_id]),
        within("queue_offset", below=message.queue_offset),
        within("store_timestamp", before.valid_to),
        one_of("tags_code", before.code_set or ()),
    ]
    if facts.rows(CONSUMEQUEUE, ["queue_offset"], between).num_rows:
        return None
    seconds = (pull.at - before.valid_to) / 1000
    return (
        f"stored {seconds:.1f} s after the subscription changed: the broker may have answered an earlier pull with it, "
        f"and the client then drops what {before.expression} does not name"
    )
