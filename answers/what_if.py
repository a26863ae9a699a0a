"""Says what another filter of a group would have delivered, beside what was delivered.

WhatIf is the answer for one subscription: messages gained and lost (:mod:`answers.filter_changes` compares them), by
queue, with samples and what they have in common.

Tried has the subscriptions to try, on each broker: one from the command line, or those that a file would change or end.
At the end, how an answer is shown, and as JSON (docs/JSON.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import pyarrow as pa

from answers.facts import BrokerFacts
from answers.filter_changes import (
    CHANGED,
    AgainstInForce,
    ChangeEffect,
    DeliveryHistory,
    FilterChanges,
    Period,
    QueueDay,
    by_queue_and_day,
)
from answers.lint import findings_of_rows
from answers.rendering import (
    Block,
    Code,
    Heading,
    Items,
    Line,
    Paragraph,
    Shown,
    Table,
    as_html,
    as_text,
    expression_line,
    time,
)
from filtering.broker_config import BrokerConfig
from filtering.counted import counted, did_you_mean, listed, shortened
from filtering.delivery.message_filter import MessageFilter, delivers, message_filter, reads_others
from filtering.findings import Finding
from filtering.frozen import frozen
from filtering.names import is_retry_topic
from filtering.predicate import FALSE, postorder
from filtering.pulls import refusal
from filtering.relation import Kind, Message, Relation, Trait, common_traits, relation
from filtering.sql92 import on_one_line
from filtering.subscription_data import Subscription, is_tag_type
from filtering.subscriptions.events import GroupTopic, SubscriptionEvents
from filtering.subscriptions.history import in_force_at, registered_alone
from filtering.subscriptions.subscription_row import SubscriptionRow
from filtering.time_spans import BEGINNING, DAY, FOREVER
from schemas.delta.table_rows import (
    filtered,
    one_of,
    sorted_by,
    tuples,
    within,
)
from schemas.errors import UsageError
from schemas.messages.newest_messages import MessagesOfTopic, Rows
from schemas.messages.stored_messages import PLACES, scan_entries
from schemas.run_ledger import SUBSCRIPTION_FILE
from schemas.spark_tasks import Session
from schemas.subscription_files import events_with_file, with_retry_topics

NAMED = 10
SAMPLES = 5


@frozen
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


@frozen
class QueueChange:
    """The messages of a queue that the group keeps, gains and loses on a day (UTC, days since the epoch)."""

    day: int
    queue_id: int
    kept: int
    gained: int
    lost: int


@dataclass(frozen=True, repr=False)
class WhatIf(Shown):
    """What ``new`` changes for a group on a topic, beside ``old``, which is in force.

    ``old`` is None if the group has no subscription, ``new`` if its subscription ends: all that it delivered is lost.
    ``period`` limits the store times of messages. ``relation`` compares the two filters for all possible messages.
    ``against_in_force`` is None if no filter is in force, or if the broker refuses its pulls. ``stored``, ``scanned``,
    ``passed_stage1``, ``failed`` and ``pending`` are those of :class:`answers.filter_changes.ChangeCounts`.
    ``has_recorded_pops``: the broker wrote down what the group popped, and what its pops read counts as pulled.
    ``filters_redeliveries``: the new filter decides in the retry topic, too.
    """

    key: GroupTopic
    old: SubscriptionRow | None
    new: SubscriptionRow | None
    period: Period
    stored: int
    scanned: int
    passed_stage1: int
    failed: int
    pending: int
    gained: ChangedMessages
    lost: ChangedMessages
    by_queue: Sequence[QueueChange]
    relation: Relation | None
    findings: Sequence[Finding]
    against_in_force: AgainstInForce | None
    has_recorded_pops: bool
    filters_redeliveries: bool

    @property
    def kept(self) -> int:
        """The number of messages that the group received and keeps."""
        return sum(queue.kept for queue in self.by_queue)

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
        differences = AgainstInForce(len(self.gained), len(self.lost))
        return self.against_in_force is not None and self.against_in_force != differences

    def __str__(self) -> str:
        return as_text(blocks(self))

    def _repr_html_(self) -> str:
        return as_html(blocks(self))


def what_if(
    facts: BrokerFacts,
    wanted: Sequence[SubscriptionRow],
    period: Period,
    session: Session | None = None,
    ended: Sequence[SubscriptionRow] = (),
) -> list[WhatIf]:
    """What each subscription would change, and then what is lost if those that are in force and ``ended`` end.

    Raises UsageError if a topic of ``wanted`` has no messages, for a replay, and if an older mqsieve ran the nights.
    """
    facts.check_has_messages()
    facts.check_has_windows()
    if not wanted and not ended:
        return []
    for row in wanted:
        if row.topic not in facts.topics:
            hint = did_you_mean(row.topic, facts.topics) or f"; it has {listed(facts.topics, NAMED)}"
            raise UsageError(f"no message of the log has the topic {row.topic}{hint}")
    groups = {row.consumer_group for row in (*wanted, *ended)}
    before = {row.key: facts.as_consumed(row) for row in facts.in_force_of(groups)}
    pairs = [*((before.get(row.key), row) for row in wanted), *((row, None) for row in ended)]
    keys = [row.key for row in (*wanted, *ended)]
    after = {key: row for key, row in before.items() if key not in keys} | {row.key: row for row in wanted}
    history = DeliveryHistory(facts, keys, period)

    def filter_of(row: SubscriptionRow | None, rows: Mapping[GroupTopic, SubscriptionRow]) -> MessageFilter | None:
        return None if row is None else message_filter(row, rows.values(), facts.broker)

    filter_changes = [
        history.change(filter_of(new, after) or MessageFilter(*key, expression=FALSE), filter_of(old, before))
        for key, (old, new) in zip(keys, pairs, strict=True)
    ]
    changes = FilterChanges(filter_changes, period)
    effects = [ChangeEffect() for _ in keys]
    for part in scan_entries(
        facts.warehouse,
        facts.name,
        changes.properties,
        changes,
        session,
        period=period,
        bit_maps=False,
        columns=PLACES,
        each_has_entry=facts.last.is_complete,
    ):
        for effect, more in zip(effects, part, strict=True):
            effect += more
    findings = findings_of_rows(facts, wanted)
    messages_of = cache(partial(MessagesOfTopic, facts.warehouse, facts.name))
    retrying = {row.consumer_group for row in before.values() if reads_others(row, facts.broker)}
    what_ifs = []
    for key, (old, new), change, effect in zip(keys, pairs, filter_changes, effects, strict=True):
        gained, lost = (_changed_messages(messages_of(key[1]), batches) for batches in (effect.gained, effect.lost))
        what_ifs.append(
            WhatIf(
                key=key,
                old=old,
                new=new,
                period=period,
                **vars(effect.counts),
                gained=gained,
                lost=lost,
                by_queue=_by_queue(effect.kept, gained, lost),
                relation=_relation_of(old, new, facts.broker),
                findings=[finding for finding in findings if finding.key == key] if new is not None else [],
                against_in_force=effect.against_in_force if change.in_force is not None else None,
                has_recorded_pops=key in facts.pops.recorded,
                filters_redeliveries=(
                    key[0] in retrying
                    and not is_retry_topic(key[1])
                    and new is not None
                    and new.filter_data is not None
                ),
            )
        )
    return what_ifs


def _relation_of(old: SubscriptionRow | None, new: SubscriptionRow | None, broker: BrokerConfig) -> Relation | None:
    """How the filters of two subscriptions relate.

    None if one is missing or does not compile, and if the filters of the group's other topics decide, too.
    """
    if new is not None and reads_others(new, broker):
        return None
    before, after = (None if row is None else delivers(row) for row in (old, new))
    return None if before is None or after is None else relation(before, after)


def _changed_messages(messages_of_topic: MessagesOfTopic, batches: Sequence[pa.RecordBatch]) -> ChangedMessages:
    rows = sorted_by(pa.Table.from_batches(batches, CHANGED), "commitlog_offset")
    messages, others = messages_of_topic.newest_at(rows["commitlog_offset"].to_numpy())
    traits = common_traits([row["properties"] or {} for row in messages], [row["properties"] or {} for row in others])
    return ChangedMessages(rows, [_with_place(row, rows) for row in messages[:SAMPLES]], traits)


def _with_place(message: dict[str, Any], entries: pa.Table) -> dict[str, Any]:
    """A sample with its place in the queue: in an LMQ, it is not that of the message."""
    (entry,) = filtered(entries, [one_of("commitlog_offset", [message["commitlog_offset"]])]).to_pylist()
    place = {name: entry[name] for name in ("queue_id", "queue_offset")}
    return place | {name: value for name, value in message.items() if name != "commitlog_offset"}


def _by_queue(kept: Counter[QueueDay], gained: ChangedMessages, lost: ChangedMessages) -> list[QueueChange]:
    more, fewer = (
        by_queue_and_day(side.rows["queue_id"].to_numpy(), side.rows["store_timestamp"].to_numpy())
        for side in (gained, lost)
    )
    return [QueueChange(*key, kept[key], more[key], fewer[key]) for key in sorted({*kept, *more, *fewer})]


# Subscriptions to try.


def subscription_of(facts: BrokerFacts, group: str, topic: str, expression: str, type_: str) -> SubscriptionRow:
    """The subscription as it would be in force. Raises UsageError if the broker refuses it, or every pull of it."""
    subscription = Subscription(topic=topic, expression=expression, type=type_, version=1)
    row = facts.as_consumed(registered_alone(group, subscription, facts.broker))
    _check(row, facts)
    return row


@frozen
class Tried:
    """What is tried on a broker: ``changed`` subscriptions instead of those in force, and the end of some of these.

    ``kept``: the other subscriptions in force.
    """

    facts: BrokerFacts
    changed: Sequence[SubscriptionRow]
    ended: Sequence[SubscriptionRow] = ()
    kept: Sequence[SubscriptionRow] = ()

    @property
    def keys(self) -> list[GroupTopic]:
        """The groups and topics whose subscriptions change or end."""
        return [row.key for row in (*self.changed, *self.ended)]


def changes_of_file(facts: BrokerFacts, given: SubscriptionEvents, filters_only: bool, digest: str) -> Tried:
    """The subscriptions that a night with a file would change and end. Raises UsageError if the broker refuses one.

    ``filters_only``: the file is a consumerFilter.json, without TAG subscriptions. ``digest``: that of its bytes.
    A retry topic without messages is as good as unchanged.
    """
    now = {row.key: row for row in facts.in_force}
    is_known = facts.last.inputs.get(SUBSCRIPTION_FILE) == digest and not given.is_snapshot
    if given.is_snapshot:
        committed = {*tuples(filtered(facts.offsets, [within("committed", 0)]), "consumer_group", "topic")}
        given = with_retry_topics(given, facts.in_force, committed.__contains__)
    events = (
        facts.events if is_known else events_with_file(facts.events, given, facts.in_force, facts.end, filters_only)
    )
    end = max([facts.end, *(event.at for event in events)])
    after = {row.key: row for row in in_force_at(facts.history_after(events), end) if row.is_consuming}
    differing = [
        facts.as_consumed(row) for key, row in after.items() if key not in now or now[key].filter != row.filter
    ]
    changed = [row for row in differing if row.topic in facts.topics or not is_retry_topic(row.topic)]
    for row in changed:
        _check(row, facts)
    ended = [row for key, row in now.items() if row.is_consuming and key not in after]
    kept = [row for key, row in after.items() if key in now and now[key].filter == row.filter]
    return Tried(facts, changed, ended, kept)


def _check(row: SubscriptionRow, facts: BrokerFacts) -> None:
    """Raises UsageError if the broker refuses a subscription, or every pull of it."""
    if row.compile_error is not None:
        raise UsageError(
            f"{row.consumer_group} on {row.topic}: the filter does not compile: {on_one_line(row.compile_error)}"
        )
    is_sql92 = not is_tag_type(row.expression_type)
    if row.pops and is_sql92 and not facts.broker.enable_property_filter and facts.pops_by_remoting(row.key):
        raise UsageError(
            f"the clients of {row.consumer_group} would not start: the broker tells a remoting client that it does not "
            "support SQL92, since enablePropertyFilter is off"
        )
    code = refusal(row, facts.broker)
    if code is not None:
        raise UsageError(f"the broker would answer every pull of {row.consumer_group} on {row.topic} with {code.text}")


def brokers_that_know(brokers: Sequence[BrokerFacts], group: str) -> list[BrokerFacts]:
    """The brokers at which a group ever subscribed. Raises UsageError if there is none."""
    knowing = [facts for facts in brokers if group in facts.groups]
    known = sorted({name for facts in brokers for name in facts.groups})
    if known and not knowing:
        hint = did_you_mean(group, known) or "; --changes FILE tries a group that is new"
        raise UsageError(f"{group} has no subscription in {brokers[0].warehouse.location}{hint}")
    if not knowing:
        brokers[0].subscriptions_of(group)
    return knowing


def tried_on(brokers: Sequence[BrokerFacts], changes: Callable[[BrokerFacts], Tried]) -> list[Tried]:
    """The ``changes`` of each broker, without those that are tried on other brokers, which alone have messages.

    Raises UsageError, with the broker if there are several, if the broker refuses one.
    """
    tried = []
    for facts in brokers:
        try:
            tried.append(changes(facts))
        except UsageError as error:
            raise UsageError(f"{facts.name}: {error}" if len(brokers) > 1 else str(error)) from None
    with_messages = {key for each in tried for key in each.keys if key[1] in each.facts.topics}

    def shown(each: Tried, rows: Sequence[SubscriptionRow]) -> list[SubscriptionRow]:
        return [row for row in rows if row.topic in each.facts.topics or row.key not in with_messages]

    return [replace(each, changed=shown(each, each.changed), ended=shown(each, each.ended)) for each in tried]


def what_if_on_brokers(
    tried: Sequence[Tried], period: Period, session: Session | None = None
) -> list[tuple[str, WhatIf]]:
    """What each subscription would change, with the broker's name. Those of one group and topic are together."""
    changes = [
        (each.facts.name, change)
        for each in tried
        for change in what_if(each.facts, each.changed, period, session, each.ended)
    ]
    order = {key: number for number, key in enumerate(dict.fromkeys(key for each in tried for key in each.keys))}
    return sorted(changes, key=lambda each: order[each[1].key])


# How a what-if is shown: as blocks, which become text, Markdown or HTML, and as JSON (docs/JSON.md).


QUEUES_SHOWN = 40
LONGEST_PROPERTIES = 160
NOTHING_TO_COMPARE = "there is no message to compare"
"""Said where the topic has no message in the period."""
NOT_KNOWN_OF_POPS = (
    "the group pops: what its pops read is compared. When others would have been popped is not known, nor what would "
    "have been acknowledged or come again"
)
REDELIVERIES_NOT_COMPARED = (
    "the broker filters redeliveries by this filter, too (filterSupportRetry): they are not compared"
)
_KINDS = {
    Kind.EQUIVALENT: "delivers the same messages as the old one",
    Kind.WIDER: "is wider: it delivers everything that the old one delivers",
    Kind.NARROWER: "is narrower: it delivers nothing that the old one does not deliver",
    Kind.DISJOINT: "is disjoint: it delivers nothing that the old one delivers",
    Kind.OVERLAPPING: "overlaps with the old one: each delivers messages that the other does not",
    Kind.UNKNOWN: "may relate to the old one in any way: no relation could be proven",
}


def totals(what_ifs: Iterable[WhatIf]) -> str:
    counts = [(len(change.gained), len(change.lost), change.kept) for change in what_ifs]
    gained, lost, kept = map(sum, zip(*counts, strict=True))
    return f"{gained:,} gained, {lost:,} lost, {kept:,} kept"


def blocks(change: WhatIf, broker: str | None = None) -> Iterator[Block]:
    """What another filter changes for a group and a topic. ``broker``: its name, where there are several."""
    (group, topic), where = change.key, "" if broker is None else f", {broker}"
    yield Heading(f"{group} on {topic}{where}: {totals([change])}", 2)
    yield Items(list(_facts(change)))
    for kind, side in (("Gained", change.gained), ("Lost", change.lost)):
        if len(side):
            yield Paragraph(f"{kind}: {counted(len(side), 'message')}", is_strong=True)
            yield from _side(side, _names(change))
    if change.by_queue:
        yield from _queue_blocks(change)


def _facts(change: WhatIf) -> Iterator[Line]:
    yield "in force: ", *_filter(change.old)
    yield "instead: no subscription: the file ends it" if change.new is None else ("instead: ", *_filter(change.new))
    yield from _period(change)
    if change.has_recorded_pops:
        yield NOT_KNOWN_OF_POPS
    if change.filters_redeliveries:
        yield REDELIVERIES_NOT_COMPARED
    if change.relation is not None:
        yield from _relation(change.relation)
    if change.against_in_force is not None and change.deliveries_differ:
        yield from _against_in_force(change.against_in_force)
    if change.pending:
        matching = counted(change.pending, "pending message matches", "pending messages match")
        yield f"{matching} the new filter; the group has not pulled them yet"
    if change.new is None:
        return
    yield (
        f"cost: {counted(change.scanned, 'entry', 'entries')} scanned, {change.passed_stage1:,} pass on the entry alone"
        + (f", the expression fails on {counted(change.failed, 'message')}" if change.failed else "")
    )
    for finding in change.findings:
        yield f"{finding.severity}: {finding.text}"


def _period(change: WhatIf) -> Iterator[str]:
    begin, end = change.period
    limits = [f"from {time(begin)}"] * (begin != BEGINNING) + [f"before {time(end)}"] * (end != FOREVER)
    if limits:
        yield f"only messages stored {' and '.join(limits)}: {change.stored:,} of {change.key[1]}"
    if not change.stored:
        yield NOTHING_TO_COMPARE


def _against_in_force(against: AgainstInForce) -> Iterator[str]:
    yield (
        f"against the filter in force, as if it had always been: {against.gained:,} gained, {against.lost:,} "
        "lost; --max-gained and --max-lost count these"
    )
    if against.same_gains:
        yield (
            f"{against.same_gains:,} of the gained messages pass the filter in force, too: the group did not receive "
            "them for another reason, such as an earlier filter, or a message deleted before it was pulled"
        )
    if against.same_losses:
        yield (
            f"{against.same_losses:,} of the lost messages do not pass the filter in force either: the group received "
            "them under an earlier filter"
        )


def _relation(relation: Relation) -> Iterator[Line]:
    condition = ", if all numbers are written with the digits 0 to 9" if relation.plain_numbers else ""
    yield f"the new filter {_KINDS[relation.kind]}{condition}"
    if relation.only_old is not None:
        yield "only the old one delivers ", _message(relation.only_old)
    if relation.only_new is not None:
        yield "only the new one delivers ", _message(relation.only_new)


def _names(change: WhatIf) -> list[str]:
    """The properties that the two filters read."""
    filters = [delivers(row) for row in (change.old, change.new) if row is not None]
    nodes = postorder(predicate for predicate in filters if predicate is not None)
    return list(dict.fromkeys(name for node in nodes for name in node.properties))


def _side(side: ChangedMessages, names: Sequence[str]) -> Iterator[Block]:
    """What the messages have in common, and some of them with these properties."""
    if side.traits:
        traits = (
            (f"{trait.share:.0%} have ", Code(trait.text), f" ({trait.share_of_others:.0%} of the others)")
            for trait in side.traits
        )
        yield Items(list(traits))
    rows = [
        (
            f"{row['queue_id']}/{row['queue_offset']}", time(row["store_timestamp"]), row["keys"] or "",
            _message({name: text for name, text in (row["properties"] or {}).items() if name in names}),
        )
        for row in side.samples
    ]  # fmt: skip
    yield Table(("queue/offset", "stored", "keys", "properties"), rows)


def _queue_blocks(change: WhatIf) -> Iterator[Block]:
    rows = [
        (time(row.day * DAY)[:10], str(row.queue_id), f"{row.kept:,}", f"{row.gained:,}", f"{row.lost:,}")
        for row in change.by_queue[:QUEUES_SHOWN]
    ]
    yield Table(("day", "queue", "kept", "gained", "lost"), rows)
    if len(change.by_queue) > QUEUES_SHOWN:
        yield Paragraph(f"… and {len(change.by_queue) - QUEUES_SHOWN:,} more rows; --json shows all")


def _filter(row: SubscriptionRow | None) -> tuple[str, ...]:
    if row is None:
        return ("no subscription",)
    return f"{row.expression_type or 'TAG'} ", Code(expression_line(row.expression))


def _message(message: Message) -> str:
    text = ", ".join(f"{name}={text!r}" for name, text in message.items())
    return Code(shortened(text, LONGEST_PROPERTIES)) if text else "none of the properties that the filters read"


def what_if_json(change: WhatIf) -> dict[str, Any]:
    """A what-if as a JSON object."""
    (group, topic), relation = change.key, change.relation
    return {
        "consumer_group": group,
        "topic": topic,
        "old": None if change.old is None else change.old.expression,
        "new": None if change.new is None else change.new.expression,
        "ends": change.new is None,
        "gained": len(change.gained),
        "lost": len(change.lost),
        "kept": change.kept,
        "pending": change.pending,
        "against_in_force": None if change.against_in_force is None else vars(change.against_in_force),
        "from": None if change.period[0] == BEGINNING else change.period[0],
        "to": None if change.period[1] == FOREVER else change.period[1],
        "stored": change.stored,
        "is_popping": change.has_recorded_pops,
        "filters_redeliveries": change.filters_redeliveries,
        "relation": None if relation is None else relation.kind.value,
        "relation_of_plain_numbers": relation is not None and relation.plain_numbers,
        "only_old": None if relation is None else relation.only_old,
        "only_new": None if relation is None else relation.only_new,
        "cost": {"scanned": change.scanned, "passed_stage1": change.passed_stage1, "errors": change.failed},
        "by_queue": [
            {"day": time(row.day * DAY)[:10], "queue_id": row.queue_id}
            | {"kept": row.kept, "gained": row.gained, "lost": row.lost}
            for row in change.by_queue
        ],
        "gained_messages": _side_object(change.gained),
        "lost_messages": _side_object(change.lost),
        "findings": [vars(finding) for finding in change.findings],
    }  # fmt: skip


def _side_object(side: ChangedMessages) -> dict[str, Any]:
    traits = [
        {"property": trait.name, "values": trait.values, "share": trait.share, "share_of_others": trait.share_of_others}
        for trait in side.traits
    ]
    places = side.rows.select(["queue_id", "queue_offset", "commitlog_offset", "store_timestamp"])
    return {"traits": traits, "samples": side.samples, "messages": places.to_pylist()}
