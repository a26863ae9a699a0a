"""Remarks on a night for the user, one line each: the code of a condition (CONDITIONS of the report), and a text.

The ledger keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from filtering.consumption.allocation import assumption
from filtering.consumption.offsets import BrokerOffsets
from filtering.counted import counted, listed
from filtering.subscriptions.namespace import is_system_group
from filtering.subscriptions.subscription_row import SubscriptionRow
from jobs.night.inputs.broker import Broker
from jobs.night.inputs.night_inputs import NightInputs, NightOptions
from jobs.night.inputs.snapshot import StoreSnapshot
from jobs.night.inputs.steps import Step
from jobs.night.log.log_plan import LogPlan
from jobs.night.night import NightOutcome
from schemas.run_ledger import LedgerEntry
from schemas.time_text import time_text

NAMED = 20


def version_remarks(broker: Broker, last_night: LedgerEntry | None) -> Iterator[str]:
    """Remarks on the broker's version: it is another one than in the last night, or not what the store shows."""
    now = broker.config.rocketmq_version
    if last_night is not None and last_night.broker.rocketmq_version != now:
        before = last_night.broker.rocketmq_version
        since = (last_night.as_of or 0) + 1
        doubt = ""
        if last_night.version_is_assumed:
            doubt = f": if it had {now} in earlier nights, too, give --rocketmq-version {now} and --redo-from 0"
        yield (
            f"new-version: RocketMQ {now} since {time_text(since)}, {before} before. What earlier nights told stays as "
            f"it is{doubt}"
        )
    if broker.shown is not None:
        yield f"other-version: RocketMQ {now} was given, but the store looks like that of {broker.shown}"


def log_remarks(
    broker: Broker, snapshot: StoreSnapshot | None, plan: LogPlan | None, as_of: int | None
) -> Iterator[str]:
    """Remarks on the log. ``as_of``: the end of the last night, ms; None if there was none."""
    if plan is None or snapshot is None:
        return
    if as_of is None and broker.name_in_store is not None:
        yield (
            "other-broker: "
            f"the topics.json of the store is of {broker.name_in_store}, and the messages are stored as "
            f"those of {broker.name}: if this is not another name for it, run nightly with the right broker.conf and "
            "a new --warehouse"
        )
    is_older = snapshot.taken_at < (as_of or 0)
    if plan.deleted is not None:
        start, end = plan.deleted
        yield (
            "missed-log: "
            f"the broker deleted {counted(end - start, 'byte')} of its log (offsets {start:,} to {end:,}) before "
            "any night read them: their messages are in no table"
        )
    if plan.unread is not None:
        start, end = plan.unread
        yield (
            "earlier-log: "
            f"the log begins earlier than in all nights before (at offset {start:,}, not {end:,}): no night reads "
            "what is before the first night's log. To have those messages, run nightly with a new --warehouse"
        )
    if plan.cut:
        yield (
            "cut-log: "
            f"the log differs from offset {plan.cut:,} on from what was read: a broker cuts the end of its log "
            "when it recovers. The messages from there on, and their deliveries, were replaced"
            + (". If this is an older copy of the store, run nightly on the newest one to have them back" * is_older)
        )
    if plan.cut == 0:
        yield f"new-epoch: a new epoch of {broker.name}: all earlier rows of it were replaced"
    if plan.repaired:
        places = counted(len(plan.repaired), "damaged place of the log was", "damaged places of the log were")
        yield f"repaired: {places} repaired and read"
    if plan.mended:
        messages = counted(len(plan.mended), "message with a damaged body has", "messages with a damaged body have")
        yield f"repaired: {messages} the right one now"


def input_remarks(
    broker: Broker, inputs: NightInputs, options: NightOptions, had_hooks: bool, has_messages: bool
) -> Iterator[str]:
    """Remarks on missing inputs, and on values of broker.conf that the broker reads in another way than they seem.

    ``had_hooks``: whether the last night had filter hooks. ``has_messages``: whether the message log has some, or none
    are expected.
    """
    yield from (f"misread-setting: {line}" for line in broker.misread)
    if Step.DELIVER in options.steps and not options.hooks and had_hooks:
        yield "no-filter-hooks: no --filter-hooks: the last run had them, and this one tells also what they would drop"
    if inputs.message_log is not None and not has_messages:
        yield f"no-message: no message: nothing in {inputs.message_log.name} could be decoded"


def outcome_remarks(outcome: NightOutcome, history: Iterable[SubscriptionRow], offsets: BrokerOffsets) -> Iterator[str]:
    """Remarks on groups that do not keep up or have no known subscription, and on bodies that are damaged or empty."""
    behind = [f"{group.key[0]} on {group.key[1]}" for group in outcome.plan.groups if group.behind]
    if behind:
        yield (
            f"behind: online groups that do not keep up, by their committed offsets: {len(behind)}; the messages "
            f"beyond these are pending: {listed(behind, NAMED)}"
        )
    yield from (
        f"assumed-queues: queues assumed: {group} on {topic}: {assumption(queues)}"
        for (group, topic), queues in sorted(outcome.plan.assumed.items())
    )
    if damaged := outcome.result.damaged_bodies:
        bodies = counted(damaged, "message whose body does", "messages whose bodies do")
        yield f"damaged-body: damaged, but kept: {bodies} not match the crc32"
    if lost := outcome.result.in_lost_pulls:
        yield (
            f"empty-body: {counted(lost, 'delivery is', 'deliveries are')} uncertain: Java clients up to 5.2.0 fail on "
            "a pull with a message that has no body, and their listeners get no message of it"
        )
    known = {row.consumer_group for row in history}
    unknown = sorted({group for group, _ in offsets.committed if group not in known and not is_system_group(group)})
    if unknown:
        yield (
            f"unknown-subscription: groups in consumerOffset.json without a known subscription: {len(unknown)}; they "
            f"were not replayed: {listed(unknown, NAMED)}"
        )
