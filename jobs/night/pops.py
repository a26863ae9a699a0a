"""The pops of a night, from the broker's own record: rows of pops, and the deliveries to groups that pop.

The tasks of a night have put the record into pop_records. What a pop handed out is a delivery at the time of the pop,
unless the exact tags do not match (the proxy or the client then drops and acknowledges it), or the message was tried
too often. Earlier pops get what became of them since: acknowledged, renewed, redelivered. Where nothing was written
down, it is the other way round: pops follow from the deliveries that were inferred. docs/POP.md has the rules.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.consumption.offsets import Offsets
from filtering.delivery import Outcome
from filtering.delivery.delivery_blocks import BYTES_IN_A_ROW, rows_of_deliveries
from filtering.delivery.entries import Int64s, among, has_entry, positions_in
from filtering.delivery.pull_window import PullWindow
from filtering.delivery.topic_filters import TopicFilters
from filtering.frozen import frozen
from filtering.names import CHECKPOINT, retry_topics, subscribed_topic
from filtering.pops.handed_out import (
    NONE,
    OUTCOMES,
    REVIVED_WITHIN,
    PopOutcomes,
    PopsByKey,
    PopsInForce,
    Records,
    are_within,
    attempts,
    handed_out,
    numbered,
    redeliveries,
)
from filtering.pops.modes import Interval
from filtering.pops.passed_over import PassedOver, QueuedMessages, Unpopped, passed_over
from filtering.subscriptions.events import GroupTopic
from filtering.time_spans import FOREVER
from jobs.night.commit import Changes
from jobs.night.past import BrokerState
from schemas.arrow_batches import codes, gathered, one_array, repeated, replaced
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS, PLANNED, RECORDED, table_of_pairs
from schemas.delta.table import ROWS_OF_A_GROUP, DataFileWriter
from schemas.delta.table_rows import (
    Key,
    Where,
    files_that_may_hold,
    filtered,
    filtered_by_mask,
    greatest,
    group_numbers,
    least,
    one_of,
    positions_by,
    sorted_by,
    tuples,
    within,
)
from schemas.messages.stored_messages import StoredRange, read_entries
from schemas.rocketmq_store.segments import LogRange
from schemas.tables import CONSUMEQUEUE, POP_RECORDS, POPS

_QUEUE = ["topic", "queue_id"]
_QUEUE_OF_GROUP = ["consumer_group", *_QUEUE]
_KEY = [*_QUEUE_OF_GROUP, "queue_offset"]
_POP_COLUMNS = ["start_offset", "popped_at"]
_RECORD_TIMES = ["popped_at", "commitlog_offset", "store_timestamp"]
RECORD = [
    "kind", *_KEY, *_POP_COLUMNS, "commitlog_offset", "invisible_time", "messages", "is_copy", "is_put_again",
    "store_timestamp",
]  # fmt: skip
"""The columns of POP_RECORDS from which pops follow."""
_OF_CHECKPOINT = [
    *_KEY, *_POP_COLUMNS, "commitlog_offset", "invisible_time", "messages", "is_copy", "is_put_again",
]  # fmt: skip
_OF_ACKNOWLEDGEMENT = [*_KEY, *_RECORD_TIMES, "is_copy", "is_put_again"]
_MESSAGE = [
    "topic", "queue_id", "queue_offset", "commitlog_offset", "store_timestamp", "sys_flag", "tags", "reconsume_times",
]  # fmt: skip
_COPY = ["topic", "commitlog_offset", "uniq_key", "reconsume_times"]
_NO_COPIES = COMMITLOG.file_schema.empty_table().select(_COPY)


@frozen
class PopCounts:
    """The messages that pops handed out in a night, by group, topic and queue id.

    ``delivered``: those that clients got. ``returned``: also those that were dropped by their tags, or given up.
    ``uncertain``: those of which it is not known whether a client got them.
    ``starts``: the least queue offset at which a pop began to read. ``ends``: the offset after the last message that a
    pop handed out. ``recorded``: the groups and topics of which the record has all pops.
    """

    delivered: Mapping[Key, int] = field(default_factory=dict)
    returned: Mapping[Key, int] = field(default_factory=dict)
    uncertain: Mapping[Key, int] = field(default_factory=dict)
    starts: Mapping[Key, int] = field(default_factory=dict)
    ends: Mapping[Key, int] = field(default_factory=dict)
    recorded: Collection[GroupTopic] = ()


NO_POP_COUNTS = PopCounts()


class NightPops:
    """The pops of one night. ``end``: the physical offset up to which the night goes.

    ``committed``: the offsets that the broker has when the night ends. ``records``: the checkpoints and the
    acknowledgements that the night read (:func:`by_kind`).
    ``recovered_ranges``: the parts of the log that only this night could read.
    """

    def __init__(
        self,
        state: BrokerState,
        changes: Changes,
        outcomes: PopOutcomes,
        records: tuple[pa.Table, pa.Table],
        end: int,
        committed: Mapping[GroupTopic, Offsets],
        recovered_ranges: Sequence[LogRange] = (),
    ) -> None:
        self._state = state
        self._changes = changes
        self._begin, self._end = state.filtered_to, end
        self._outcomes = outcomes
        self._read = records
        self._committed = committed
        self._recovered_ranges = recovered_ranges
        self.passed_over: Mapping[GroupTopic, PassedOver] = {}
        """Of groups that remoting clients pop: an operator may have switched them to pulls and back meanwhile."""

    def run(self) -> PopCounts:
        """Adds the rows of pops and deliveries to the changes. Returns the counts of deliveries.

        The night's messages are read, and the rows of pops written, in a second thread.
        """
        checkpoints, acknowledgements = records = self._records()
        before = self._open_before(records)
        if not any(map(len, (*records, before))):
            return NO_POP_COUNTS
        topics = list({topic for part in records for topic in pc.unique(part["topic"]).to_pylist()})
        with ThreadPoolExecutor(1) as thread:
            reading = thread.submit(self._messages, topics, self._begin, self._end)
            pops = _pops(before, self._without_known(checkpoints), acknowledgements, self._changes.run)
            old, new = pops.slice(0, len(before)), pops.slice(len(before))
            earlier = self._messages(topics, self._first_message(new), self._begin)
            messages = earlier.followed_by(reading.result())
            popped = messages.rows.take(_optional(messages.find(new, positions_by(new, _QUEUE))))
            pops = self._redelivered(pa.concat_tables([old, _with_messages(new, popped)]))
            old, new = pops.slice(0, len(before)), pops.slice(len(before))
            writing = thread.submit(self._write, old, new, self._open_since(records))
            counts = self._deliver(new, popped)
            self.passed_over = dict(self._passed_over(new, messages))
            writing.result()
        return counts

    def _passed_over(self, pops: pa.Table, messages: QueuedMessages) -> Iterator[tuple[GroupTopic, PassedOver]]:
        mode_was_set = self._outcomes.mode_was_set
        by_key = positions_by(pops, ["consumer_group", "topic"]) if mode_was_set else ()
        popped = {key: own for key, own in by_key if key in mode_was_set}
        if not popped:
            return
        handed = pops["commitlog_offset"].fill_null(NONE).to_numpy()
        of_pops = [pops[name].to_numpy() for name in ("queue_id", "popped_at", "start_offset", "queue_offset")]
        recorded_until = messages.recorded_until
        for key, own in sorted(popped.items(), key=itemgetter(0)):
            committed = self._committed.get(key, {})
            bounds = [(queue_id, recorded_until, offset, offset - 1) for queue_id, offset in committed.items()]
            if self._state.as_of is not None:
                before = self._state.offsets.of(key)
                bounds += [(queue_id, self._state.as_of, offset, offset - 1) for queue_id, offset in before.items()]
            columns = [
                np.append(values[own], each)
                for values, each in zip(of_pops, np.array(bounds, np.int64).reshape(-1, 4).T, strict=True)
            ]
            passed = passed_over(key, columns, handed[own], self._outcomes, messages, self._begin)
            if passed is not None:
                yield key, passed

    def _write(self, old: pa.Table, new: pa.Table, open_since: Where) -> None:
        if len(old):
            self._changes.update_rows(POPS, open_since, old.to_batches())
        for is_open in (False, True):  # so that the next night rewrites a small file
            self._changes.add_rows(POPS, new.filter(pc.equal(new["is_open"], is_open)).to_batches())

    def _records(self) -> Sequence[pa.Table]:
        """The checkpoints and acknowledgements of the night's part of the log, and those that no night read before."""
        tonight = [within("commitlog_offset", self._begin, self._end)]
        late = [within("commitlog_offset", below=self._begin), one_of("run", [self._changes.run])]
        records = []
        for read, read_late in zip(self._read, by_kind(read_records(self._changes, late)), strict=True):
            part = pa.concat_tables([filtered(read, tonight), read_late])
            records.append(filtered_by_mask(part, pc.invert(part["is_put_again"].fill_null(False))))
        return records

    def _open_before(self, records: Sequence[pa.Table]) -> pa.Table:
        """The rows of earlier pops that may have been acknowledged, renewed or redelivered in this night."""
        return self._changes.rows(POPS, None, self._open_since(records), POPS.dictionary_texts)

    def _open_since(self, records: Sequence[pa.Table]) -> Where:
        times = [
            (self._state.as_of or 0) - REVIVED_WITHIN,
            *(pc.min(part["popped_at"]).as_py() for part in records if len(part)),
        ]
        return [one_of("is_open", [True]), within("visible_at", min(times))]

    def _without_known(self, checkpoints: pa.Table) -> pa.Table:
        """The checkpoints without copies of those that this night or earlier ones read: the first one counts."""
        is_copy = np.array(checkpoints["is_copy"])
        if not is_copy.any():
            return checkpoints
        first, last = pc.min_max(checkpoints["popped_at"].filter(pa.array(is_copy))).as_py().values()
        where = [
            within("commitlog_offset", below=self._begin),
            within("popped_at", first, last + 1),
            one_of("kind", [CHECKPOINT]),
        ]
        both = [read_records(self._changes, where), checkpoints]
        checkpoint = _numbered(both, [*_QUEUE_OF_GROUP, *_POP_COLUMNS])
        is_first = np.append(np.ones(len(both[0]), bool), ~is_copy)
        is_new = ~is_copy
        is_new[is_copy] = ~np.array(pc.is_in(pa.array(checkpoint[~is_first]), pa.array(checkpoint[is_first])))
        return checkpoints.filter(pa.array(is_new))

    def _messages(self, topics: Sequence[str], begin: int, end: int) -> QueuedMessages:
        """The stored messages of some topics between two physical offsets."""
        where = [one_of("topic", topics), within("commitlog_offset", begin, end)]
        rows = self._changes.rows(COMMITLOG, _MESSAGE, where, ["topic", "tags"])
        is_entry = has_entry(rows["sys_flag"].fill_null(0).to_numpy())
        rows = _in_order_of_the_log(filtered_by_mask(rows, pa.array(is_entry)))
        return QueuedMessages.of(rows, positions_by(rows, _QUEUE))

    def _first_message(self, pops: pa.Table) -> int:
        """A physical offset before which no message of the pops is."""
        first = least(pops, _QUEUE, "queue_offset").items()
        runs = (self._state.first_run_with(topic, queue_id, offset) for (topic, queue_id), offset in first)
        run = min(filter(None, runs), default=None)
        if run is None:
            return min([self._begin, *(part.start for part in self._recovered_ranges)])
        files = (file for file in self._changes.files(CONSUMEQUEUE) if file.greatest["run"] >= run)
        return min([self._begin, *(int(file.least["commitlog_offset"]) for file in files)])

    def _redelivered(self, pops: pa.Table) -> pa.Table:
        """The rows with ``redelivered_as`` of those that came again."""
        at = np.flatnonzero(np.array(pc.and_(pops["is_open"], pc.is_valid(pops["commitlog_offset"]))))
        at = at[np.argsort(pops["visible_at"].to_numpy()[at], kind="stable")]
        waiting = pops.take(pa.array(at))
        keys, number = group_numbers(waiting, ["consumer_group", "topic"])
        subscribed = [(group, subscribed_topic(group, topic)) for group, topic in keys]
        number_of = {key: i for i, key in enumerate(dict.fromkeys(subscribed))}
        number_by_topic = {topic: number_of[key] for key in subscribed for topic in retry_topics(*key)}
        where = [one_of("topic", list(number_by_topic)), within("commitlog_offset", self._begin, self._end)]
        retried = _in_order_of_the_log(self._changes.rows(COMMITLOG, _COPY, where) if number_by_topic else _NO_COPIES)
        offsets = waiting["commitlog_offset"].to_numpy()
        where = [within("commitlog_offset", int(offsets.min()), int(offsets.max()) + 1)] if len(offsets) else []
        where.append(one_of("commitlog_offset", offsets.tolist()))
        popped = _in_order_of_the_log(self._changes.rows(COMMITLOG, _COPY, where) if len(retried) else _NO_COPIES)
        popped = popped.take(_optional(positions_in(popped["commitlog_offset"].to_numpy(), offsets)))
        text = codes(retried["uniq_key"], popped["uniq_key"])
        number_of_retried = [number_by_topic[topic] for topic in retried["topic"].to_pylist()]
        number_of_waiting = np.array([number_of[key] for key in subscribed], np.int64)[number]
        redelivery_at = redeliveries(
            (np.array(number_of_retried, np.int64), text[: len(retried)], retried["reconsume_times"].to_numpy()),
            (number_of_waiting, text[len(retried) :], waiting["attempt"].to_numpy()),
        )
        is_redelivered = redelivery_at != NONE
        redelivered_as = pops["redelivered_as"].fill_null(NONE).to_numpy().copy()
        redelivered_as[at[is_redelivered]] = retried["commitlog_offset"].to_numpy()[redelivery_at[is_redelivered]]
        is_open = np.array(pops["is_open"]) & (redelivered_as == NONE)
        return replaced(pops, redelivered_as=_optional(redelivered_as), is_open=pa.array(is_open))

    def _deliver(self, pops: pa.Table, messages: pa.Table) -> PopCounts:
        """Writes the deliveries of pops whose message is stored. Returns their counts. ``messages``: theirs."""
        pops = pops.append_column("tags", messages["tags"])
        pops = pops.append_column("store_timestamp", messages["store_timestamp"])
        pops = filtered_by_mask(pops, pc.is_valid(pops["commitlog_offset"]))
        by_key, in_force = self._by_key(pops)
        starts = least(pops, _QUEUE_OF_GROUP, "start_offset")
        ends = {key: last + 1 for key, last in greatest(pops, _QUEUE_OF_GROUP, "queue_offset").items()}
        is_for_nobody = self._outcomes.for_nobody(in_force, np.array(pc.is_valid(pops["acknowledged_at"])))
        (uncertain,) = _counts(pops, is_for_nobody)
        if is_for_nobody.any():
            pops = pops.filter(pa.array(~is_for_nobody))
            by_key, in_force = self._by_key(pops)
        if not len(pops):
            return PopCounts(uncertain=uncertain, starts=starts, ends=ends)
        popped_at, attempt = pops["popped_at"].to_numpy(), pops["attempt"].to_numpy()
        decided = self._outcomes.outcomes(by_key, in_force, popped_at, attempt, pops["tags"])
        subscription_from, outcome, is_uncertain = decided
        writer = DataFileWriter(DELIVERY_BLOCKS, self._changes.warehouse.log(DELIVERY_BLOCKS).storage)
        rows = pops.append_column("available_at", pops["popped_at"])
        rows = rows.append_column("subscription_from", pa.array(subscription_from))
        stored = pops["store_timestamp"].to_numpy()
        blocks = recorded_blocks(rows, stored, outcome, OUTCOMES, self._changes.run, RECORDED)
        for batch in gathered(blocks, ROWS_OF_A_GROUP, BYTES_IN_A_ROW):
            writer.write(batch)
        self._changes.add_files(DELIVERY_BLOCKS, writer.close())
        is_delivered = outcome == OUTCOMES.index(Outcome.DELIVERED)
        is_kept = np.array(pc.or_(pc.is_valid(pops["acknowledged_at"]), pc.is_valid(pops["renewed_at"])))
        is_redelivered = np.array(pc.is_valid(pops["redelivered_as"]))
        is_uncertain |= self._outcomes.may_be_for_nobody(by_key, popped_at, is_kept, is_redelivered)
        delivered, returned, also_uncertain = _counts(pops, is_delivered, np.ones(len(pops), bool), is_uncertain)
        return PopCounts(delivered, returned, uncertain + also_uncertain, starts, ends)

    def _by_key(self, pops: pa.Table) -> tuple[PopsByKey, PopsInForce]:
        by_key = list(positions_by(pops, ["consumer_group", "topic"]))
        return by_key, self._outcomes.in_force(by_key, pops["popped_at"].to_numpy())


def _counts(pops: pa.Table, *masks: NDArray[np.bool_]) -> Iterator[Counter[Key]]:
    """For each mask of pops, their number by group, topic and queue id."""
    queues, queue = group_numbers(pops, _QUEUE_OF_GROUP)
    for mask in masks:
        counts = np.bincount(queue[mask], minlength=len(queues)).tolist()
        yield Counter({key: count for key, count in zip(queues, counts, strict=True) if count})


def popped_times(checkpoints: pa.Table) -> dict[GroupTopic, Interval]:
    """The times (ms) of the first and the last pop, by group and subscribed topic."""
    times: dict[GroupTopic, Interval] = {}
    first = least(checkpoints, ["consumer_group", "topic"], "popped_at")
    last = greatest(checkpoints, ["consumer_group", "topic"], "popped_at")
    for (group, topic), at in first.items():
        key = group, subscribed_topic(group, topic)
        known = times.get(key, (at, at))
        times[key] = min(known[0], at), max(known[1], last[group, topic])
    return times


def read_by_pops(
    checkpoints: pa.Table, pops: Mapping[GroupTopic, Sequence[Interval]], begin: int
) -> dict[GroupTopic, dict[int, Offsets]]:
    """By the time (ms) at which groups begin or cease to pop after ``begin``, how far they had come in each queue.

    A group begins where its first pop of a queue began to read, and ceases after the last message that it popped.
    """
    read: dict[GroupTopic, dict[int, Offsets]] = {}
    for key, intervals in pops.items():
        bounds = [(since, until) for since, until in intervals if since > begin or begin < until < FOREVER]
        if not bounds:
            continue
        for topic in (key[1], *retry_topics(*key)):
            where = [one_of("consumer_group", [key[0]]), one_of("topic", [topic])]
            own = sorted_by(filtered(checkpoints, where), "popped_at")
            for since, until in bounds:
                popped = filtered(own, [within("popped_at", since, until)])
                if since > begin:
                    first: dict[int, int] = {}
                    for queue_id, offset in tuples(popped, "queue_id", "start_offset"):
                        first.setdefault(queue_id, offset)
                    read.setdefault((key[0], topic), {})[since] = first
                if begin < until < FOREVER:
                    ends = greatest(popped, ["queue_id"], "queue_offset")
                    offsets = {queue_id: offset + 1 for (queue_id,), offset in ends.items()}
                    read.setdefault((key[0], topic), {})[until] = offsets
    return read


def recorded_blocks(
    rows: pa.Table, store_timestamp: Int64s, outcome: Int64s, outcomes: Sequence[str], run: str, source: str
) -> Iterator[pa.RecordBatch]:
    """Rows of delivery_blocks from rows with the columns of PAIRS; ``outcome`` has numbers of ``outcomes``."""
    names = ("queue_id", "queue_offset", "commitlog_offset", "available_at", "subscription_from")
    keys, group = group_numbers(rows, ["consumer_group"])
    groups = [each for (each,) in keys]
    columns = {name: rows[name].to_numpy() for name in names}
    columns |= {"store_timestamp": store_timestamp, "group": group, "outcome": outcome}
    known = {"run": pa.array([run]), "source": pa.array([source])}
    for (topic,), own in positions_by(rows, ["topic"]):
        deliveries = {column: values[own] for column, values in columns.items()}
        for row in rows_of_deliveries(topic, deliveries, groups, outcomes):
            yield DELIVERY_BLOCKS.batch(row | known, 1)


def read_records(changes: Changes, where: Where) -> pa.Table:
    """Some rows of the broker's record, with the columns RECORD. Texts are dictionaries."""
    return changes.rows(POP_RECORDS, RECORD, where, POP_RECORDS.dictionary_texts)


def by_kind(records: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The checkpoints and the acknowledgements of a record, with the columns that count."""
    is_checkpoint = one_of("kind", [CHECKPOINT]).mask(records)
    checkpoints = records.select(_OF_CHECKPOINT).filter(is_checkpoint)
    return checkpoints, records.select(_OF_ACKNOWLEDGEMENT).filter(pc.invert(is_checkpoint))


def _pops(before: pa.Table, checkpoints: pa.Table, acknowledgements: pa.Table, run: str) -> pa.Table:
    """Rows of POPS: those of earlier pops in their order, as they are now, and then those of new ones.

    Of new ones, the message is not known yet.
    """
    popped_at = pc.coalesce(before["renewed_at"], before["popped_at"])
    ends = pc.add(checkpoints["popped_at"], checkpoints["invisible_time"])
    begins_there = pc.equal(checkpoints["start_offset"], checkpoints["queue_offset"])
    is_single = pc.and_(pc.equal(checkpoints["messages"], 1), begins_there)
    message = _numbered([before, checkpoints, acknowledgements], _KEY)
    count, known = len(before), len(before) + len(checkpoints)
    popped_at = np.append(popped_at.to_numpy(), checkpoints["popped_at"].to_numpy())
    visible_at = np.append(before["visible_at"].to_numpy(), ends.to_numpy())
    record_offset = np.append(before["record_offset"].to_numpy(), checkpoints["commitlog_offset"].to_numpy())
    handed = handed_out(
        Records(message[:known], popped_at, record_offset, record_offset),
        visible_at,
        np.append(np.zeros(count, bool), np.array(is_single)),
        Records(
            message[known:],
            *(acknowledgements[name].to_numpy() for name in _RECORD_TIMES),
        ),
        np.array(acknowledgements["is_copy"]),
    )
    in_order = np.full(known, NONE)
    in_order[handed.checkpoint] = np.arange(len(handed))
    own = in_order[in_order != NONE]
    checkpoint, last = handed.checkpoint[own], handed.last[own]
    is_renewed = checkpoint != last
    same = [*_KEY, *_POP_COLUMNS, "invisible_time"]
    new = checkpoints.select([*same, "commitlog_offset"]).take(pa.array(checkpoint[count:] - count))
    added = {name: one_array(new[name]) for name in same} | {
        "source": repeated(RECORDED, len(new)),
        "record_offset": one_array(new["commitlog_offset"]),
        "visible_at": pa.array(handed.visible_at[own][count:]),
        "is_open": pa.repeat(True, len(new)),
        "run": repeated(run, len(new)),
    }
    pops = pa.concat_tables([before, pa.Table.from_batches([POPS.batch(added, len(new))]).cast(before.schema)])
    renewed_at = np.where(is_renewed, popped_at[last], NONE)
    acknowledged_at = handed.acknowledged_at[own]
    return replaced(
        pops,
        renewed_at=pc.coalesce(_optional(renewed_at), pops["renewed_at"].combine_chunks()),
        visible_at=pa.array(handed.visible_at[own]),
        acknowledged_at=_optional(acknowledged_at),
        is_open=pa.array(acknowledged_at == NONE),
    )


def pulls_between_pops(
    candidates: Mapping[str, Sequence[Unpopped]], bit_num: int, ranges: Sequence[StoredRange], changes: Changes
) -> dict[str, list[PullWindow]]:
    """By topic, the pulls of ``candidates`` that brought a message. ``bit_num``: the bits of a filter bit map."""
    filters = {topic: TopicFilters(bit_num, windows=[each.window for each in own]) for topic, own in candidates.items()}
    commitlog, consumequeue = (changes.warehouse.log(table).storage for table in (COMMITLOG, CONSUMEQUEUE))
    properties = {topic: each.properties for topic, each in filters.items()}
    matching: defaultdict[tuple[str, int], list[Int64s]] = defaultdict(list)
    for part in ranges:
        for entries in read_entries(part, commitlog, consumequeue, properties):
            own = candidates[entries.topic]
            selected = {i: among(entries.commitlog_offset, each.commitlog_offset) for i, each in enumerate(own)}
            delivered = filters[entries.topic].run(entries, selected).delivered.flags(len(own))
            for number, flags in enumerate(delivered):
                matching[entries.topic, number].append(entries.commitlog_offset[flags])
    pulls = {
        topic: [
            pull
            for number, each in enumerate(own)
            if (topic, number) in matching
            for pull in each.pulls(np.concatenate(matching[topic, number]))
        ]
        for topic, own in candidates.items()
    }
    return {topic: own for topic, own in pulls.items() if own}


def add_planned_pops(planned: Mapping[GroupTopic, Sequence[Interval]], changes: Changes) -> None:
    """Adds rows of POPS for what groups popped tonight and no broker wrote down: they follow from the deliveries.

    ``planned``: when these groups pop, by group and topic.
    """
    tonight = [one_of("run", [changes.run])]
    writer = DataFileWriter(POPS, changes.warehouse.log(POPS).storage)
    for file in files_that_may_hold(changes.files(DELIVERY_BLOCKS), tonight) if planned else ():
        blocks = changes.warehouse.rows(DELIVERY_BLOCKS, None, tonight, [file])
        deliveries = table_of_pairs(blocks, {group for group, _ in planned}, OUTCOMES)
        popped = deliveries.filter(pa.array(_is_popped(deliveries, planned)))
        if len(popped):
            writer.write([POPS.batch(_planned_columns(popped, changes), len(popped))])
    changes.add_files(POPS, writer.close())


def _is_popped(deliveries: pa.Table, planned: Mapping[GroupTopic, Sequence[Interval]]) -> NDArray[np.bool_]:
    """Which inferred deliveries were pops: of groups and topics at times that are ``planned``."""
    at, is_popped = deliveries["available_at"].to_numpy(), np.zeros(len(deliveries), bool)
    for (group, topic), own in positions_by(deliveries, ["consumer_group", "topic"]):
        is_popped[own] = are_within(planned.get((group, subscribed_topic(group, topic)), ()), at[own], at[own])
    is_popped &= np.array(pc.not_equal(deliveries["source"], RECORDED), bool)
    return is_popped


def _planned_columns(popped: pa.Table, changes: Changes) -> dict[str, pa.Array]:
    """Columns of POPS from rows of PAIRS."""
    offsets = popped["commitlog_offset"].to_numpy()
    where = [
        one_of("topic", pc.unique(popped["topic"]).to_pylist()),
        within("commitlog_offset", int(offsets.min()), int(offsets.max()) + 1),
    ]
    messages = _in_order_of_the_log(changes.rows(COMMITLOG, ["commitlog_offset", "reconsume_times"], where))
    at = _optional(positions_in(messages["commitlog_offset"].to_numpy(), offsets))
    attempt = attempts(messages["reconsume_times"].take(at))
    same = ("consumer_group", "topic", "queue_id", "queue_offset", "commitlog_offset")
    return {name: popped[name].combine_chunks() for name in same} | {
        "popped_at": popped["available_at"].combine_chunks(),
        "visible_at": popped["available_at"].combine_chunks(),
        "attempt": attempt.combine_chunks(),
        "source": repeated(PLANNED, len(popped)),
        "is_open": pa.repeat(False, len(popped)),
        "run": repeated(changes.run, len(popped)),
    }


def restore_pops(before_run: str, cut: int, changes: Changes) -> None:
    """Takes back what became of the pops of the nights before a run, as far as records from ``cut`` on said it."""
    earlier = [within("run", below=before_run), one_of("source", [RECORDED])]
    pops = changes.rows(POPS, None, earlier, POPS.dictionary_texts)
    if not len(pops):
        return
    nothing = pa.nulls(len(pops), pa.int64())
    fresh = replaced(
        pops, renewed_at=nothing, visible_at=pc.add(pops["popped_at"], pops["invisible_time"]), acknowledged_at=nothing
    )
    known = _pops(fresh, *by_kind(read_records(changes, ())), before_run).slice(0, len(pops))
    redelivered_as = pops["redelivered_as"].fill_null(NONE).to_numpy()
    redelivered_as = np.where(redelivered_as < cut, redelivered_as, NONE)
    is_open = np.array(pc.is_null(known["acknowledged_at"])) & (redelivered_as == NONE)
    known = replaced(known, redelivered_as=_optional(redelivered_as), is_open=pa.array(is_open))
    changes.update_rows(POPS, earlier, known.to_batches())


def _with_messages(pops: pa.Table, messages: pa.Table) -> pa.Table:
    """Rows of POPS with what is known of their messages."""
    attempt = attempts(messages["reconsume_times"])
    return replaced(pops, commitlog_offset=messages["commitlog_offset"], attempt=attempt)


def _in_order_of_the_log(messages: pa.Table) -> pa.Table:
    """Most files are in this order."""
    offsets = messages["commitlog_offset"]
    return messages if (np.diff(offsets.to_numpy()) > 0).all() else messages.take(pc.sort_indices(offsets))


def _numbered(parts: Sequence[pa.Table], names: Iterable[str]) -> Int64s:
    """A number for each row of some tables, one after another: the same for rows with the same values."""
    return numbered([_numbers([part[name] for part in parts]) for name in names])


def _numbers(columns: Sequence[pa.ChunkedArray]) -> Int64s:
    """The values of columns of numbers, or the codes of texts, one after another."""
    is_number = pa.types.is_integer(columns[0].type)
    return np.concatenate([column.to_numpy() for column in columns]) if is_number else codes(*columns)


def _optional(values: Int64s) -> pa.Int64Array:
    """Numbers that are null instead of NONE."""
    return pa.array(values, mask=values == NONE)
