"""Compares what another filter of a group would have delivered with what was delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.delivery.block_schema import DELIVERED, DROPPED_BY_HOOK
from filtering.delivery.filter_changes import GAINED, LOST, ChangeResult, FilterChange, FilterChanges
from filtering.delivery.message_filter import message_filter
from filtering.findings import Finding
from filtering.findings.static import delivers
from filtering.relation import Relation, Trait, common_traits, relation
from filtering.subscriptions.history import SubscriptionRow
from filtering.time_spans import DAY
from schemas.answers.facts import BrokerFacts
from schemas.answers.findings import findings_of_rows
from schemas.answers.plain_text import Shown
from schemas.answers.pulled_offsets import PulledOffsets
from schemas.answers.what_if_html import what_if_html, what_if_text
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delivery_pairs import PAIRS, pairs_of
from schemas.delta.table_rows import one_of, within
from schemas.errors import UsageError
from schemas.messages.messages_at import Rows, messages_at
from schemas.messages.stored_entries import scan_entries
from schemas.spark_tasks import Session

SAMPLES = 5
Period = tuple[int, int]
"""Store times, ms, the second exclusive."""


@dataclass(frozen=True)
class ChangedMessages:
    """Messages that a change gains, or loses: ``rows`` of CHANGED, and ``samples`` of the newest as readers see them.

    ``traits`` are what the newest 1,000 of them have in common, compared with other messages of the topic.
    """

    rows: pa.Table
    samples: Rows
    traits: Sequence[Trait]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class QueueChange:
    """The messages of a queue that the group keeps, gains and loses on a day (UTC, days since the epoch)."""

    day: int
    queue_id: int
    kept: int
    gained: int
    lost: int


@dataclass(frozen=True, repr=False)
class WhatIf(Shown):
    """What ``new`` changes for a group on a topic; ``old`` is in force, None if the group has no subscription.

    ``relation`` compares the two filters for all possible messages. ``scanned``, ``passed_stage1`` and ``failed`` are
    entries, as in :class:`filtering.delivery.filter_changes.ChangeResult`; ``pending`` are messages that the new
    filter matches and the group has yet to pull; no other count includes them.
    """

    old: SubscriptionRow | None
    new: SubscriptionRow
    relation: Relation | None
    kept: int
    gained: ChangedMessages
    lost: ChangedMessages
    by_queue: Sequence[QueueChange]
    scanned: int
    passed_stage1: int
    failed: int
    pending: int
    findings: Sequence[Finding]

    def __str__(self) -> str:
        return what_if_text(self)

    def _repr_html_(self) -> str:
        return what_if_html(self)


def what_if(
    facts: BrokerFacts, wanted: Sequence[SubscriptionRow], period: Period, session: Session | None = None
) -> list[WhatIf]:
    """What each subscription would change, in their order.

    Raises UsageError if a topic has no messages, and for a replay.
    """
    facts.check_has_messages()
    for row in wanted:
        if row.topic not in facts.topics:
            raise UsageError(f"no message of the log has the topic {row.topic}; it has {', '.join(facts.topics)}")
    history = _History(facts, wanted, period)
    changes = FilterChanges([history.change(row) for row in wanted], period)
    total = ChangeResult()
    for part in scan_entries(
        facts.warehouse, facts.name, changes.properties, changes, session, stored=period, bit_maps=False
    ):
        total.add(part)
    in_force = {(row.consumer_group, row.topic): row for row in facts.in_force()}
    found = findings_of_rows(facts, wanted)
    return [
        _what_if(facts, number, row, in_force.get((row.consumer_group, row.topic)), total, found)
        for number, row in enumerate(wanted)
    ]


def _what_if(
    facts: BrokerFacts,
    number: int,
    new: SubscriptionRow,
    old: SubscriptionRow | None,
    total: ChangeResult,
    found: Sequence[Finding],
) -> WhatIf:
    changes, kinds = total.rows["change"], total.rows["kind"]
    sides = {
        kind: total.rows.filter(pc.and_(pc.equal(changes, number), pc.equal(kinds, kind))) for kind in (GAINED, LOST)
    }
    kept = {(day, queue): count for (change, day, queue), count in total.kept.items() if change == number}
    before, after = delivers(old) if old is not None else None, delivers(new)
    return WhatIf(
        old=old,
        new=new,
        relation=relation(before, after) if before is not None and after is not None else None,
        kept=sum(kept.values()),
        gained=_changed(facts, new.topic, sides[GAINED]),
        lost=_changed(facts, new.topic, sides[LOST]),
        by_queue=_by_queue(kept, sides[GAINED], sides[LOST]),
        scanned=total.scanned[number],
        passed_stage1=total.passed_stage1[number],
        failed=total.failed[number],
        pending=total.pending[number],
        findings=[
            finding for finding in found if (finding.consumer_group, finding.topic) == (new.consumer_group, new.topic)
        ],
    )


def _changed(facts: BrokerFacts, topic: str, rows: pa.Table) -> ChangedMessages:
    offsets = np.sort(rows["commitlog_offset"].to_numpy())
    found, others = messages_at(facts.warehouse, facts.name, topic, offsets) if len(rows) else ([], [])
    traits = common_traits([row["properties"] or {} for row in found], [row["properties"] or {} for row in others])
    return ChangedMessages(rows, found[:SAMPLES], traits)


def _by_queue(kept: Mapping[tuple[int, int], int], gained: pa.Table, lost: pa.Table) -> list[QueueChange]:
    counts = {kind: _counts(rows) for kind, rows in ((GAINED, gained), (LOST, lost))}
    keys = sorted({*kept, *counts[GAINED], *counts[LOST]})
    return [QueueChange(*key, kept.get(key, 0), counts[GAINED][key], counts[LOST][key]) for key in keys]


def _counts(rows: pa.Table) -> Counter[tuple[int, int]]:
    """The rows by day and queue id."""
    days, queues = rows["store_timestamp"].to_numpy() // DAY, rows["queue_id"].to_numpy()
    keys, counts = np.unique(days << 32 | queues, return_counts=True)
    return Counter(
        {(key >> 32, key & 0xFFFFFFFF): count for key, count in zip(keys.tolist(), counts.tolist(), strict=True)}
    )


class _History:
    """The messages of some topics that groups pulled, and those that they received."""

    def __init__(self, facts: BrokerFacts, wanted: Sequence[SubscriptionRow], period: Period) -> None:
        self._facts = facts
        groups, topics = {row.consumer_group for row in wanted}, {row.topic for row in wanted}
        self._received = _received(facts, groups, topics, period)
        self._pulled = PulledOffsets(facts, groups, topics)

    def change(self, row: SubscriptionRow) -> FilterChange:
        """The change to another subscription."""
        group, topic = row.consumer_group, row.topic
        new_filter = message_filter(row, [row], self._facts.broker)
        assert new_filter is not None
        received = self._received.filter(
            pc.and_(pc.equal(self._received["consumer_group"], group), pc.equal(self._received["topic"], topic))
        )
        pulled, pending = self._pulled.of(group, topic)
        return FilterChange(
            new_filter, _offsets(received, DELIVERED), _offsets(received, DROPPED_BY_HOOK), pulled, pending
        )


def _received(facts: BrokerFacts, groups: set[str], topics: set[str], period: Period) -> pa.Table:
    """The pairs of some groups and topics."""
    where = [
        one_of("topic", topics),
        within("first_store_timestamp", below=period[1]),
        within("last_store_timestamp", low=period[0]),
    ]
    blocks = facts.rows(DELIVERY_BLOCKS, DELIVERY_BLOCKS.file_schema.names, where)
    columns = ["consumer_group", "topic", "commitlog_offset", "outcome"]
    parts = [pa.Table.from_batches([batch]).select(columns) for batch in pairs_of(blocks, groups)]
    return pa.concat_tables([PAIRS.empty_table().select(columns), *parts])


def _offsets(pairs: pa.Table, outcome: str) -> NDArray[np.int64]:
    """The physical offsets of the pairs with an outcome, ascending, each once."""
    found: NDArray[np.int64] = np.unique(
        pairs.filter(pc.equal(pairs["outcome"], outcome))["commitlog_offset"].to_numpy()
    )
    return found
