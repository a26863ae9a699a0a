"""Filters all stored messages with the subscriptions in force now, into a separate warehouse."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

import pyarrow.compute as pc

from answers.facts import BrokerFacts
from filtering.consumption.clients import ClientTags, by_client, disagreeing_states, kept_by_some, tag_disagreements
from filtering.consumption.offsets import BrokerOffsets, GroupProgress
from filtering.consumption.plan import NightPlan
from filtering.consumption.queues import NO_INSTANTS, QueueNight
from filtering.delivery.message_filter import message_filters
from filtering.delivery.pull_window import PullWindow, Reason, WindowKind
from filtering.frozen import frozen
from filtering.subscription_data import new_subscription
from filtering.subscriptions.events import GroupTopic, Operation, SubscriptionEvent
from filtering.subscriptions.history import in_force_after
from filtering.subscriptions.subscription_row import SubscriptionRow
from jobs.night.commit import Changes, commit, next_run
from jobs.night.inputs import SubscriptionFile
from jobs.night.rows import FilteredPart, current_offset_rows, progress_rows
from jobs.night.tasks import TopicWindows, Work, filter_entries, run_on_stored, works_by_topic
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.table_rows import sorted_by
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from schemas.ledger_check import open_warehouse, undo_unfinished_run
from schemas.messages.stored_messages import stored_ranges
from schemas.pull_windows import PULL_WINDOWS, window_rows
from schemas.run_ledger import REPLAY, LedgerEntry
from schemas.spark_tasks import Session
from schemas.subscriptions import SUBSCRIPTION_EVENTS, SUBSCRIPTIONS, event_rows, subscription_rows
from schemas.tables import CONSUMER_OFFSETS, CURRENT_OFFSETS, DELIVERY_STATS, QUEUE_PROGRESS

WRITTEN = (
    DELIVERY_BLOCKS, DELIVERY_STATS, PULL_WINDOWS, CONSUMER_OFFSETS, CURRENT_OFFSETS, QUEUE_PROGRESS, SUBSCRIPTIONS,
    SUBSCRIPTION_EVENTS,
)  # fmt: skip


@frozen
class ReplayReport:
    """The numbers of entries that the groups' pulls went past, and of deliveries."""

    scanned: int
    deliveries: int


def check_target(into: Warehouse, source: Warehouse) -> None:
    """Raises UsageError if ``into`` is the source, or holds nights instead of a replay."""
    if into.storage.root == source.storage.root:
        raise UsageError("--into is the warehouse itself: give another folder")
    if any(entry.job != REPLAY for entry in open_warehouse(into)):
        raise UsageError(f"{into.location} holds nights, not a replay: give another folder to --into")


def replay(
    facts: BrokerFacts,
    subscriptions: SubscriptionFile | None,
    period: tuple[int, int],
    into: Warehouse,
    session: Session,
) -> ReplayReport:
    """Filters the messages of a period, and replaces the content of ``into`` by the result.

    ``period``: the first and last (exclusive) store time, ms. ``subscriptions``: those that are not in force in
    ``facts`` are registered now; None: the subscriptions in force.
    """
    earlier = open_warehouse(into)
    run = next_run(earlier)
    undo_unfinished_run(into, earlier, run)
    changes = Changes(into, facts.name, run)
    events, in_force = _subscriptions(facts, subscriptions)
    changes.create_missing(WRITTEN)
    for table in WRITTEN:
        changes.replace_rows(table, [])
    since = {row.key: row.valid_from for row in in_force}
    queues = _queues(facts)
    clients = _clients(facts, events, queues)
    replayed = [
        part
        for each in message_filters(in_force, facts.broker)
        for part in _windows(
            PullWindow(
                each, since[each.key], *period, available_at=facts.as_of, kind=WindowKind.BACKLOG, reason=Reason.REPLAY
            ),
            clients,
        )
    ]
    uncertain_ranges = [
        kept_by_some(each, clients[each.key]) for each in replayed if each.is_of_client and clients[each.key].possible
    ]
    filtered_by = TopicWindows.of(replayed, uncertain_ranges)
    topics = works_by_topic(facts.broker, filtered_by)
    folder = into.log(DELIVERY_BLOCKS).storage
    work = Work(run, {DELIVERY_BLOCKS.name: folder}, topics, facts.broker.delay_levels)
    ranges = stored_ranges(partial(facts.warehouse.files, broker_name=facts.name), period=period)
    result = run_on_stored(filter_entries, ranges, facts.warehouse, work, session)
    changes.add_files(DELIVERY_BLOCKS, result.files[DELIVERY_BLOCKS.name])
    groups = [GroupProgress(row.key, is_consuming=True, decided_to=_unread(clients.get(row.key))) for row in in_force]
    plan = NightPlan((), replayed, uncertain_ranges, groups)
    rows = progress_rows({}, plan, BrokerOffsets(), [FilteredPart(filtered_by, result)], queues, facts.as_of, run)
    changes.add_rows(PULL_WINDOWS, [window_rows(plan, run)])
    changes.add_rows(CONSUMER_OFFSETS, rows.offsets)
    changes.add_rows(CURRENT_OFFSETS, current_offset_rows(rows.topics, run))
    changes.add_rows(DELIVERY_STATS, rows.stats)
    changes.add_rows(QUEUE_PROGRESS, [rows.progress])
    changes.add_rows(SUBSCRIPTIONS, [subscription_rows(in_force)])
    changes.add_rows(SUBSCRIPTION_EVENTS, [event_rows(events, 0, run)])
    entry = LedgerEntry(
        run,
        facts.name,
        REPLAY,
        facts.broker.changed,
        {"warehouse": facts.warehouse.location, "stored_from": str(period[0]), "stored_to": str(period[1])},
        input_versions={name: state.version for name, state in facts.last.tables.items()},
        as_of=facts.as_of,
    )
    commit(changes, entry)
    counts = (sum(pc.sum(batch[name]).as_py() or 0 for batch in rows.stats) for name in ("scanned", "delivered"))
    return ReplayReport(*counts)


def _subscriptions(
    facts: BrokerFacts, file: SubscriptionFile | None
) -> tuple[Sequence[SubscriptionEvent], list[SubscriptionRow]]:
    """The events, and the subscriptions in force after the last event; with a file, only those in the file."""
    in_force = facts.in_force
    if file is None:
        return facts.events, in_force
    known = {row.key: row for row in in_force}
    wanted = in_force_after(file.events.events, facts.broker, facts.expressions, facts.as_of)
    keys = {row.key for row in wanted}
    # Changed subscriptions are registered now, so no stored bit map has their bits.
    changed = [row for row in wanted if _filter_key(row) != _filter_key(known.get(row.key))]
    events = (*facts.events, *(_registration(row, facts.as_of + 1) for row in changed))
    after = in_force_after(events, facts.broker, facts.expressions, facts.as_of)
    return events, [row for row in after if row.key in keys]


def _clients(
    facts: BrokerFacts, events: Sequence[SubscriptionEvent], queues: Mapping[str, Collection[int]]
) -> dict[GroupTopic, ClientTags]:
    """By group and topic, what the client of each queue checks now, if the clients subscribe differently.

    All clients have a subscription that the replay registers.
    """
    known = facts.last.read_queues

    def queue_ids(topic: str) -> set[int]:
        return {*range(known.get(topic, 0)), *queues.get(topic, ())}

    registered = {(event.group, each["topic"]) for event in events[len(facts.events) :] for each in event.subscriptions}
    states = (state for state in disagreeing_states(facts.events) if state.valid_to is None)
    disagreeing = (state for state in states if state.key not in registered)
    client_tags = tag_disagreements(disagreeing, queue_ids, facts.last.has_queue_ids)
    return {key: clients for key, (clients,) in client_tags.items()}


def _windows(window: PullWindow, clients: Mapping[GroupTopic, ClientTags]) -> Iterable[PullWindow]:
    return by_client(window, clients[window.key]) if window.key in clients else [window]


def _unread(clients: ClientTags | None) -> dict[int, int]:
    """The beginnings of the queues that no client reads, by queue id."""
    return {queue_id: 0 for queue_id, check in clients.by_queue.items() if check is None} if clients else {}


def _filter_key(row: SubscriptionRow | None) -> tuple[object, ...]:
    if row is None:
        return ()
    return row.expression, row.expression_type, row.class_filter_mode, row.registered, row.sent_with_pull


def _registration(row: SubscriptionRow, at: int) -> SubscriptionEvent:
    """The event that registers a subscription at ``at`` (ms)."""
    operation = Operation.PULL_SUBSCRIPTION if row.sent_with_pull else Operation.REGISTER
    version = max(at, row.sub_version)
    subscription = new_subscription(row.topic, row.expression, row.expression_type, version, row.class_filter_mode)
    return SubscriptionEvent(at, operation, row.consumer_group, (subscription,))


def _queues(facts: BrokerFacts) -> dict[str, dict[int, QueueNight]]:
    """The progress of each queue over all nights."""
    queues: defaultdict[str, dict[int, QueueNight]] = defaultdict(dict)
    for row in sorted_by(facts.rows(QUEUE_PROGRESS), "run").to_pylist():
        topic, queue_id = row["topic"], row["queue_id"]
        before = queues[topic].get(queue_id)
        first, end, entries = row["from_offset"], row["to_offset"], row["entries"]
        if before is not None:
            entries += before.entries
            if row["began_at"] is None:
                first, end = min(first, before.first), max(end, before.end)
        queues[topic][queue_id] = QueueNight(first, end, entries, NO_INSTANTS)
    return dict(queues)
