"""What a night tells the user beside its numbers: a Remark for each thing that is odd, in the inputs or in the result.

The ledger keeps them, and the report shows them with other conditions that need attention (:mod:`answers.attention`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from filtering.consumption.clients import assumption
from filtering.consumption.offsets import BrokerOffsets
from filtering.counted import counted, listed
from filtering.names import is_system_group
from filtering.subscriptions.subscription_row import SubscriptionRow
from jobs.night import Step
from jobs.night.inputs import Broker
from jobs.night.log import LogPlan
from jobs.night.message_log_task import IngestedLog
from jobs.night.night import NightOutcome
from jobs.night.night_inputs import NightInputs, NightStart
from schemas.errors import time_text
from schemas.run_ledger import LedgerEntry, Remark, RemarkCode

NAMED = 20
"""So many groups are listed by name."""


def remarks_of_night(
    start: NightStart,
    ingested: IngestedLog,
    outcome: NightOutcome,
    history: Sequence[SubscriptionRow],
    offsets: BrokerOffsets,
) -> list[Remark]:
    """All remarks on a night. ``ingested``: what was read of a message log. ``history``: of all subscriptions after it.

    ``offsets``: those in the snapshot.
    """
    inputs, nights, as_of = start.inputs, start.continued_state.nights, start.state_before.as_of
    has_messages = ingested.has_messages or not start.state_before.topics
    return [
        *_version_remarks(inputs.broker, nights[-1] if nights else None),
        *_log_remarks(inputs, start.log_plan, as_of),
        *_input_remarks(inputs, bool(nights and nights[-1].hooks), has_messages),
        *_watch_remarks(inputs, as_of),
        *_outcome_remarks(outcome, history, offsets),
    ]


def _version_remarks(broker: Broker, last_night: LedgerEntry | None) -> Iterator[Remark]:
    """Remarks on the broker's version: it is another one than in the last night, or not what the store shows."""
    now = broker.config.rocketmq_version
    if last_night is not None and last_night.broker.rocketmq_version != now:
        before = last_night.broker.rocketmq_version
        since = (last_night.as_of or 0) + 1
        doubt = ""
        if last_night.version_is_assumed:
            doubt = f": if it had {now} in earlier nights, too, give --rocketmq-version {now} and --redo-from 0"
        yield Remark(
            RemarkCode.NEW_VERSION,
            f"RocketMQ {now} since {time_text(since)}, {before} before. What earlier nights decided stays as it "
            f"is{doubt}",
        )
    if broker.shown is not None:
        text = f"RocketMQ {now} was given, but the store looks like that of {broker.shown}"
        yield Remark(RemarkCode.OTHER_VERSION, text)


def _log_remarks(inputs: NightInputs, log_plan: LogPlan | None, as_of: int | None) -> Iterator[Remark]:
    """Remarks on the log. ``as_of``: the end of the last night, ms; None if there was none."""
    broker, snapshot = inputs.broker, inputs.snapshot
    if log_plan is None or snapshot is None:
        return
    is_first = as_of is None or log_plan.cut == 0
    if is_first and broker.name_in_store is not None:
        yield Remark(
            RemarkCode.OTHER_BROKER,
            f"the topics.json of the store is of {broker.name_in_store}, and the messages are stored as "
            f"those of {broker.name}: if this is not another name for it, run nightly with the right broker.conf and "
            "a new --warehouse",
        )
    is_older = snapshot.taken_at < (as_of or 0)
    if log_plan.deleted is not None:
        start, end = log_plan.deleted
        yield Remark(
            RemarkCode.MISSED_LOG,
            f"the broker deleted {counted(end - start, 'byte')} of its log (offsets {start:,} to {end:,}) before "
            "any night read them: their messages are in no table",
        )
    if log_plan.before_first is not None:
        start, end = log_plan.before_first
        yield Remark(
            RemarkCode.EARLIER_LOG,
            f"the log begins earlier than in all nights before (at offset {start:,}, not {end:,}): no night reads "
            "what is before the first night's log. To have those messages, run nightly with a new --warehouse",
        )
    if log_plan.cut:
        yield Remark(
            RemarkCode.CUT_LOG,
            f"the log differs from offset {log_plan.cut:,} on from what was read: a broker cuts the end of its log "
            "when it recovers, and an unfinished copy lacks it. The messages from there on, and their deliveries, were "
            "replaced"
            + (". If this is an older copy of the store, run nightly on the newest one to have them back" * is_older),
        )
    if log_plan.cut == 0:
        yield Remark(RemarkCode.NEW_EPOCH, f"a new epoch of {broker.name}: all earlier rows of it were replaced")
    if log_plan.recovered_ranges:
        places = counted(
            len(log_plan.recovered_ranges), "damaged place of the log was", "damaged places of the log were"
        )
        yield Remark(RemarkCode.REPAIRED, f"{places} repaired and read")
    if log_plan.recovered_bodies:
        messages = counted(
            len(log_plan.recovered_bodies), "message with a damaged body has", "messages with a damaged body have"
        )
        yield Remark(RemarkCode.REPAIRED, f"{messages} the right one now")


def _input_remarks(inputs: NightInputs, had_hooks: bool, has_messages: bool) -> Iterator[Remark]:
    """Remarks on missing inputs, and on values of broker.conf that the broker reads in another way than they seem.

    ``had_hooks``: whether the last night had filter hooks. ``has_messages``: whether the message log has some, or no
    night had any, which is a condition of its own.
    """
    yield from (Remark(RemarkCode.MISREAD_SETTING, line) for line in inputs.broker.misread)
    if Step.DELIVER in inputs.steps and not inputs.hooks and had_hooks:
        text = "no --filter-hooks: the last night had them, and what they would drop counts as delivered here"
        yield Remark(RemarkCode.NO_FILTER_HOOKS, text)
    if inputs.message_log is not None and not has_messages:
        text = f"no message: nothing in {inputs.message_log.name} could be decoded"
        yield Remark(RemarkCode.NO_MESSAGE, text)


def _watch_remarks(inputs: NightInputs, as_of: int | None) -> Iterator[Remark]:
    """Remarks on the times since the last night, which ended at ``as_of`` (ms), in which nobody watched the broker."""
    gaps = inputs.subscriptions.events.not_watched if inputs.subscriptions is not None else ()
    for since, at in gaps:
        if as_of is None or at > as_of:
            yield Remark(
                RemarkCode.NOT_WATCHED,
                f"nobody watched the broker from {time_text(since)} to {time_text(at)}: subscriptions "
                "that changed in between and back again are not known",
            )


def _outcome_remarks(
    outcome: NightOutcome, history: Iterable[SubscriptionRow], offsets: BrokerOffsets
) -> Iterator[Remark]:
    """Remarks on groups that do not keep up or have no known subscription, and on bodies that are damaged or empty."""
    behind = [f"{group.key[0]} on {group.key[1]}" for group in outcome.plan.groups if group.is_behind]
    if behind:
        yield Remark(
            RemarkCode.BEHIND,
            f"online groups that do not keep up, by their committed offsets: {len(behind)}; the messages "
            f"beyond these are pending: {listed(behind, NAMED)}",
        )
    yield from (
        Remark(RemarkCode.ASSUMED_QUEUES, f"queues assumed: {group} on {topic}: {assumption(queues)}")
        for (group, topic), queues in sorted(outcome.plan.assumed.items())
    )
    if damaged := outcome.result.damaged_bodies:
        bodies = counted(damaged, "message whose body does", "messages whose bodies do")
        yield Remark(RemarkCode.DAMAGED_BODY, f"damaged, but kept: {bodies} not match the crc32")
    if lost := outcome.result.in_lost_pulls:
        yield Remark(
            RemarkCode.EMPTY_BODY,
            f"{counted(lost, 'delivery is', 'deliveries are')} uncertain: Java clients up to 5.2.0 fail on "
            "a pull with a message that has no body, and their listeners get no message of it",
        )
    known = {row.consumer_group for row in history}
    unknown = sorted({group for group, _ in offsets.committed if group not in known and not is_system_group(group)})
    if unknown:
        yield Remark(
            RemarkCode.UNKNOWN_SUBSCRIPTION,
            f"groups in consumerOffset.json without a known subscription: {len(unknown)}; they "
            f"are not replayed: {listed(unknown, NAMED)}; give what they subscribed to with at: and --redo-from "
            "(docs/SUBSCRIPTIONS.md)",
        )
