"""Whether groups filtered by tags or by SQL92 in the nights of a broker."""

from __future__ import annotations

from itertools import pairwise

from filtering.delivery.pull_window import BEGINNING
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.states import states_by_key
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.answers.facts import BrokerFacts
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.table_rows import one_of, within


class FilterKinds:
    """The kinds of filters that the history of subscriptions shows."""

    def __init__(self, facts: BrokerFacts) -> None:
        self._facts = facts
        self._states = states_by_key(facts.history)
        spans = pairwise([BEGINNING, *(night.as_of or 0 for night in facts.nights)])
        self._spans = {night.run: span for night, span in zip(facts.nights, spans, strict=True)}

    def used_sql92(self, key: GroupTopic, run: str) -> bool | None:
        """Whether a group filtered by SQL92 in a night; None: by both. A group that was away has the filter it left."""
        begin, end = self._spans[run]
        states = [
            row
            for row in self._states[key]
            if row.valid_from <= end and (row.valid_to is None or row.valid_to > begin + 1)
        ]
        used = [row for row in states if row.is_consuming] or states[-1:]
        if len({is_tag_type(row.expression_type) for row in used}) > 1:
            used = [row for row in used if self._filtered(row, begin + 1)]
        kinds = {not is_tag_type(row.expression_type) for row in used}
        return None if len(kinds) > 1 else True in kinds

    def _filtered(self, row: SubscriptionRow, begin: int) -> bool:
        """Whether a group may have filtered messages under a state since ``begin`` (ms): new or missed ones."""
        before = [each for each in self._states[row.key] if each.valid_to == row.valid_from and each.is_consuming]
        if row.valid_from >= begin and not before:
            return True
        span = within("store_timestamp", max(row.valid_from, begin), row.valid_to)
        return len(self._facts.rows(CONSUMEQUEUE, ["store_timestamp"], [one_of("topic", [row.topic]), span])) > 0

    def changed(self, key: GroupTopic) -> bool:
        """Whether a group ever changed from one kind to the other."""
        return len({is_tag_type(row.expression_type) for row in self._states[key]}) > 1
