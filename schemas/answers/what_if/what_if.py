"""Compares what another filter of a group would have delivered with what was delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from filtering.counted import listed
from filtering.delivery.filter_changes import GAINED, LOST, ChangeResult, FilterChanges
from filtering.delivery.message_filter import delivers
from filtering.findings import Finding
from filtering.relation import Relation, Trait, common_traits, relation
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import DAY
from schemas.answers.facts import BrokerFacts
from schemas.answers.findings import findings_of_rows
from schemas.answers.rendering import Shown
from schemas.answers.what_if.delivery_history import DeliveryHistory, Period
from schemas.answers.what_if.page import what_if_html, what_if_text
from schemas.delta.table_rows import sorted_by
from schemas.errors import UsageError, did_you_mean
from schemas.messages.newest_messages import Rows, messages_at
from schemas.messages.stored_entries import scan_entries
from schemas.spark_tasks import Session

NAMED = 10
SAMPLES = 5


@dataclass(frozen=True)
class ChangedMessages:
    """Messages that a change gains, or loses.

    ``rows`` of CHANGED are in the order of the log. ``samples``: the newest messages as readers see them.
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


@dataclass(frozen=True)
class AgainstInForce:
    """Messages that the change itself gains and loses: compared with the filter in force, as if it had always been.

    The filter in force would itself gain ``same_gains`` of the gained messages, and lose ``same_losses`` of the lost
    ones: the group pulled them under an earlier filter, or the broker deleted them before.
    """

    gained: int
    lost: int
    same_gains: int
    same_losses: int


@dataclass(frozen=True, repr=False)
class WhatIf(Shown):
    """What ``new`` changes for a group on a topic; ``old`` is in force, None if the group has no subscription.

    ``ends``: the subscription ends, and ``new`` is the one that ends; all that it delivered is lost.
    ``period`` limits the store times of messages; ``stored`` messages of the topic are in it. ``against_in_force`` is
    None if no filter is in force, or if the broker refuses its pulls.
    ``relation`` compares the two filters for all possible messages. ``scanned``, ``passed_stage1`` and ``failed`` are
    entries, as in :class:`filtering.delivery.filter_changes.ChangeResult`; ``pending`` are messages that the new
    filter matches and the group has yet to pull; no other count includes them.
    """

    old: SubscriptionRow | None
    new: SubscriptionRow
    ends: bool
    period: Period
    stored: int
    relation: Relation | None
    kept: int
    gained: ChangedMessages
    lost: ChangedMessages
    against_in_force: AgainstInForce | None
    by_queue: Sequence[QueueChange]
    scanned: int
    passed_stage1: int
    failed: int
    pending: int
    findings: Sequence[Finding]

    @property
    def gained_by_change(self) -> int:
        """The messages that the change itself gains; all gained ones if there is no filter to compare with."""
        return len(self.gained) if self.against_in_force is None else self.against_in_force.gained

    @property
    def lost_by_change(self) -> int:
        """The messages that the change itself loses; all lost ones if there is no filter to compare with."""
        return len(self.lost) if self.against_in_force is None else self.against_in_force.lost

    @property
    def deliveries_differ(self) -> bool:
        """Whether the group received other messages than the filter in force would have delivered."""
        against = self.against_in_force
        if against is None:
            return False
        counts = against.gained, against.lost, against.same_gains, against.same_losses
        return counts != (len(self.gained), len(self.lost), 0, 0)

    def __str__(self) -> str:
        return what_if_text(self)

    def _repr_html_(self) -> str:
        return what_if_html(self)


def what_if(
    facts: BrokerFacts,
    wanted: Sequence[SubscriptionRow],
    period: Period,
    session: Session | None = None,
    ended: Sequence[SubscriptionRow] = (),
) -> list[WhatIf]:
    """What each subscription would change, and then what is lost if those that are in force and ``ended`` end.

    Raises UsageError if a topic of ``wanted`` has no messages, and for a replay.
    """
    facts.check_has_messages()
    if not wanted and not ended:
        return []
    for row in wanted:
        if row.topic not in facts.topics:
            hint = did_you_mean(row.topic, facts.topics) or f"; it has {listed(facts.topics, NAMED)}"
            raise UsageError(f"no message of the log has the topic {row.topic}{hint}")
    in_force = {row.key: row for row in facts.in_force_of({row.consumer_group for row in wanted})}
    pairs = [*((in_force.get(row.key), row) for row in wanted), *((row, row) for row in ended)]
    history = DeliveryHistory(facts, [*wanted, *ended], period)
    compared = [*(history.change(*pair) for pair in pairs[: len(wanted)]), *map(history.end, ended)]
    changes = FilterChanges(compared, period)
    total = ChangeResult()
    for part in scan_entries(
        facts.warehouse, facts.name, changes.properties, changes, session, period=period, bit_maps=False
    ):
        total.add(part)
    found = findings_of_rows(facts, wanted)
    return [
        _what_if(facts, number, old, new, number >= len(wanted), period, total, change.in_force is not None, found)
        for number, ((old, new), change) in enumerate(zip(pairs, compared, strict=True))
    ]


def _what_if(
    facts: BrokerFacts,
    number: int,
    old: SubscriptionRow | None,
    new: SubscriptionRow,
    ends: bool,
    period: Period,
    total: ChangeResult,
    has_filter_in_force: bool,
    found: Sequence[Finding],
) -> WhatIf:
    changes, kinds = total.rows["change"], total.rows["kind"]
    sides = {
        kind: total.rows.filter(pc.and_(pc.equal(changes, number), pc.equal(kinds, kind))) for kind in (GAINED, LOST)
    }
    kept = {(day, queue): count for (change, day, queue), count in total.kept.items() if change == number}
    against = total.new_gains, total.new_losses, total.same_gains, total.same_losses
    before, after = delivers(old) if old is not None else None, None if ends else delivers(new)
    return WhatIf(
        old=old,
        new=new,
        ends=ends,
        period=period,
        stored=total.stored[number],
        relation=relation(before, after) if before is not None and after is not None else None,
        kept=sum(kept.values()),
        gained=_changed(facts, new.topic, sides[GAINED]),
        lost=_changed(facts, new.topic, sides[LOST]),
        against_in_force=AgainstInForce(*(counts[number] for counts in against)) if has_filter_in_force else None,
        by_queue=_by_queue(kept, sides[GAINED], sides[LOST]),
        scanned=total.scanned[number],
        passed_stage1=total.passed_stage1[number],
        failed=total.failed[number],
        pending=total.pending[number],
        findings=[finding for finding in found if finding.key == new.key and not ends],
    )


def _changed(facts: BrokerFacts, topic: str, rows: pa.Table) -> ChangedMessages:
    rows = sorted_by(rows, "commitlog_offset")
    offsets = rows["commitlog_offset"].to_numpy()
    found, others = messages_at(facts.warehouse, facts.name, topic, offsets) if len(rows) else ([], [])
    traits = common_traits([row["properties"] or {} for row in found], [row["properties"] or {} for row in others])
    return ChangedMessages(rows, found[:SAMPLES], traits)


def _by_queue(kept: Mapping[tuple[int, int], int], gained: pa.Table, lost: pa.Table) -> list[QueueChange]:
    counts = {kind: _counts(rows) for kind, rows in ((GAINED, gained), (LOST, lost))}
    keys = sorted({*kept, *counts[GAINED], *counts[LOST]})
    return [QueueChange(*key, kept.get(key, 0), counts[GAINED][key], counts[LOST][key]) for key in keys]


def _counts(rows: pa.Table) -> Counter[tuple[int, int]]:
    """The rows by day and queue id."""
    days = rows["store_timestamp"].to_numpy() // DAY
    return Counter(zip(days.tolist(), rows["queue_id"].to_pylist(), strict=True))
