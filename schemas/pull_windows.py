"""The plan of each night: which subscription filtered which messages for which group, and when it could pull them.

Windows are stored after the groups' committed offsets have limited them. So a message was filtered for a group if one
of its windows covers it (:func:`planned_windows`), whatever happened later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from filtering.delivery.message_filter import MessageFilter, tag_check
from filtering.delivery.pull_window import (
    FILTERING,
    NO_BEGIN,
    NO_END,
    OffsetRange,
    PullWindow,
    Reason,
    StartReason,
    UncertainRange,
    WindowKind,
)
from filtering.predicate import TextIn
from filtering.subscriptions.events import ConsumeMode
from filtering.time_spans import BEGINNING, FOREVER
from schemas.delta.table import Table, column
from schemas.delta.table_rows import sorted_by

if TYPE_CHECKING:
    from filtering.consumption.plan import NightPlan
    from filtering.delivery.message_filter import NightFilters

_ALL_OFFSETS, _WHOLE_RANGE = (0, NO_END), (NO_BEGIN, NO_END)
_QUEUE = pa.struct(
    [
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("from_queue_offset", pa.int64(), nullable=False),
        pa.field("to_queue_offset", pa.int64()),
        pa.field("from_commitlog_offset", pa.int64()),
        pa.field("to_commitlog_offset", pa.int64()),
    ]
)
_ELEMENT = "queues.list.element"
_REASON_TEXTS: Mapping[Reason | StartReason, str] = {
    **{reason: reason.value for reason in Reason},
    **{reason: f"{Reason.FIRST_START}: {reason}" for reason in StartReason},
}
_REASONS: Mapping[str, Reason | StartReason] = {text: reason for reason, text in _REASON_TEXTS.items()}

PULL_WINDOWS = Table(
    "pull_windows",
    "The windows in which groups pulled, as nights planned them: one row for each group, topic, subscription and "
    "range of messages. Ranges do not include their ends.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("consumer_group", pa.string(), nullable=False),
        column("topic", pa.string(), nullable=False),
        column(
            "kind",
            pa.string(),
            "online: filters messages that the run read; backlog: and those of earlier runs; reset: as backlog, from "
            "an offset to which the group went back; late: filters messages of the time of an earlier night that only "
            "this run could read; lost: messages that were gone before the group pulled them; uncertain: messages "
            "that may have met the subscription before this one, or of which it is not known which client read them",
            nullable=False,
        ),
        column("mode", pa.string(), "PULL; POP: the group pops, and the broker does not write it down", nullable=False),
        column("reason", pa.string(), "why the window begins where it begins", nullable=False),
        column("subscription_from", pa.int64(), "valid_from of the subscription", nullable=False),
        column("stored_from", pa.int64(), "least store_timestamp of the messages; null: no limit"),
        column("stored_to", pa.int64(), "store_timestamp before which they were stored; null: no limit"),
        column("available_at", pa.int64(), "when the group could first pull them; null: when each was stored"),
        column(
            "queues",
            pa.list_(_QUEUE),
            "queues with the ranges of queue offsets and, where a queue began again, of physical offsets; null in a "
            "range: no limit; null: no queue is listed",
        ),
        column("only_listed", pa.bool_(), "whether other queues are left out; else all of their entries are in it"),
        column(
            "client_tags",
            pa.list_(pa.string()),
            "the tags that the client of these queues checks, if clients differ; empty: it checks none; null: as the "
            "subscription says",
        ),
        column("run", pa.string(), "the run that planned the window", nullable=False),
    ],
    statistics_on=("run",),
    dictionary_encoded=(
        "consumer_group", "topic", "kind", "mode", "reason", "subscription_from", "stored_from", "stored_to",
        "available_at", f"{_ELEMENT}.queue_id", f"{_ELEMENT}.from_queue_offset", f"{_ELEMENT}.to_queue_offset",
        f"{_ELEMENT}.from_commitlog_offset", f"{_ELEMENT}.to_commitlog_offset", "client_tags.list.element", "run",
    ),
)  # fmt: skip


def window_rows(plan: NightPlan, run: str) -> pa.RecordBatch:
    """The windows of a night's plan as rows."""
    windows = [*plan.online, *plan.backlog, *plan.lost, *map(_uncertain_window, plan.uncertain_ranges)]
    return _rows(windows, run)


def late_window_rows(windows: Iterable[PullWindow], run: str) -> pa.RecordBatch:
    """The windows that filtered late messages in a run as rows."""
    return _rows([replace(window, kind=WindowKind.LATE) for window in windows], run)


def _uncertain_window(uncertain: UncertainRange) -> PullWindow:
    unfiltered = MessageFilter(uncertain.consumer_group, uncertain.topic)
    return PullWindow(
        unfiltered, uncertain.changed_at, uncertain.stored_from, uncertain.stored_to, offsets=uncertain.offsets,
        only_listed=uncertain.only_listed, physical_ranges=uncertain.physical_ranges, kind=WindowKind.UNCERTAIN,
        reason=uncertain.reason, mode=uncertain.mode,
    )  # fmt: skip


def _rows(windows: Sequence[PullWindow], run: str) -> pa.RecordBatch:
    count = len(windows)
    columns = {
        "consumer_group": pa.array([window.consumer_group for window in windows], pa.string()),
        "topic": pa.array([window.topic for window in windows], pa.string()),
        "kind": pa.array([window.kind.value for window in windows], pa.string()),
        "mode": pa.array([window.mode.value for window in windows], pa.string()),
        "reason": pa.array([_REASON_TEXTS[window.reason] for window in windows], pa.string()),
        "subscription_from": pa.array([window.subscription_from for window in windows], pa.int64()),
        "stored_from": _limited([window.stored_from for window in windows], BEGINNING),
        "stored_to": _limited([window.stored_to for window in windows], FOREVER),
        "available_at": pa.array([window.available_at for window in windows], pa.int64()),
        "queues": _queues(windows),
        "only_listed": pa.array([window.only_listed for window in windows], pa.bool_()),
        "client_tags": pa.array([_client_tags(window) for window in windows], pa.list_(pa.string())),
        "run": pa.repeat(run, count),
    }
    return PULL_WINDOWS.batch(columns, count)


def _limited(values: Sequence[int], unlimited: int) -> pa.Array:
    """A column of numbers; null where there is no limit."""
    numbers = np.array(values, np.int64)
    return pa.array(numbers, mask=numbers == unlimited)


def _queues(windows: Sequence[PullWindow]) -> pa.Array:
    """The column ``queues``; its values are made column by column, since there may be a hundred thousand."""
    ends, queue_ids, offsets, physical_ranges = [0], list[int](), list[OffsetRange](), list[OffsetRange]()
    for window in windows:
        if window.offsets or window.physical_ranges:
            listed = sorted(
                window.offsets if window.only_listed else window.offsets.keys() | window.physical_ranges.keys()
            )
            queue_ids += listed
            offsets += [window.offsets.get(queue_id, _ALL_OFFSETS) for queue_id in listed]
            physical_ranges += [window.physical_ranges.get(queue_id, _WHOLE_RANGE) for queue_id in listed]
        ends.append(len(queue_ids))
    columns = [
        pa.array(queue_ids, pa.int32()),
        pa.array([low for low, _ in offsets], pa.int64()),
        _limited([high for _, high in offsets], NO_END),
        _limited([begin for begin, _ in physical_ranges], NO_BEGIN),
        _limited([end for _, end in physical_ranges], NO_END),
    ]
    is_null = np.diff(ends, prepend=0)[1:] == 0
    starts = pa.array(np.array(ends, np.int32), mask=np.append(is_null, False))
    return pa.ListArray.from_arrays(starts, pa.StructArray.from_arrays(columns, fields=list(_QUEUE)))


def _client_tags(window: PullWindow) -> list[str] | None:
    if not window.is_of_client:
        return None
    check = window.message_filter.client_tags
    return sorted(check.texts) if isinstance(check, TextIn) else []


def stored_windows(rows: pa.Table) -> list[tuple[str, PullWindow]]:
    """The windows of some rows, without their filters, each with its run, in the order of the runs."""
    return [(row["run"], _stored_window(row)) for row in sorted_by(rows, "run").to_pylist()]


def _stored_window(row: Mapping[str, Any]) -> PullWindow:
    """The window of a row, without its filter."""
    offsets, physical_ranges = {}, {}
    for queue in row["queues"] or ():
        offsets[queue["queue_id"]] = queue["from_queue_offset"], _limit(queue["to_queue_offset"], NO_END)
        begin, end = queue["from_commitlog_offset"], queue["to_commitlog_offset"]
        if begin is not None or end is not None:
            physical_ranges[queue["queue_id"]] = _limit(begin, NO_BEGIN), _limit(end, NO_END)
    return PullWindow(
        MessageFilter(row["consumer_group"], row["topic"]), row["subscription_from"],
        _limit(row["stored_from"], BEGINNING), _limit(row["stored_to"], FOREVER), row["available_at"], offsets,
        row["only_listed"], physical_ranges, WindowKind(row["kind"]),
        _REASONS.get(row["reason"], Reason.OF_OLDER_VERSION), row["client_tags"] is not None, ConsumeMode(row["mode"]),
    )  # fmt: skip


def planned_windows(rows: pa.Table, filters: NightFilters, night_began: int | None) -> Iterator[PullWindow]:
    """The windows with which a night filtered messages, from its rows. ``night_began``: ms; None: it was the first."""
    for row in rows.to_pylist():
        window = _stored_window(row)
        if window.kind not in FILTERING:
            continue
        at = window.available_at
        if at is None:
            begin = max(window.stored_from, window.subscription_from)
            at = begin if window.kind is WindowKind.ONLINE or night_began is None else night_began
        filter_ = filters.at(window.key, window.subscription_from, at, window.mode)
        if row["client_tags"] is not None:
            filter_ = replace(filter_, client_tags=tag_check(row["client_tags"]))
        yield replace(window, message_filter=filter_)


def _limit(value: int | None, unlimited: int) -> int:
    return unlimited if value is None else value
