"""The work of a night's tasks, and their results. Both travel between the driver and its workers.

A task gets a Work: the filters of each topic, and the folders of the tables that it writes. It returns a TaskResult:
the files that it wrote, the counts of each window (TopicCounts), and how far each queue came (QueueProgress). Three
functions run as tasks:

- :func:`read_range` reads a range of the broker's log (LogRange), from bytes to rows of all tables.
- :func:`make_entries` makes the entries of stored messages that have none yet, and filters them.
- :func:`filter_entries` filters stored messages that have entries, for groups that pull them only now.

All give their messages to a NightWriter. It collects them until there are enough of a topic, makes the consume queue
entries (NewEntries), runs the topic's filters on them (TopicFilters), applies clients' hooks, packs the deliveries
into blocks, counts, and writes files. Results are added to each other in the order of the log. Entries in LMQs are made
in one more pass (:func:`make_lmq_entries`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.broker_config import BrokerConfig
from filtering.consumption.queues import NO_INSTANTS, Queues, add_progress, progress_of_block
from filtering.delivery import Outcome, topic_filters
from filtering.delivery.delivery_blocks import BYTES_IN_A_ROW, MatchSets, block_matches, block_rows, recipients
from filtering.delivery.entries import MULTI_QUEUE_OFFSET, Entries, Int32s, Int64s, MultiDispatch, has_entry
from filtering.delivery.filter_hooks import Hook, after_hooks
from filtering.delivery.message_filter import TAGS_PROPERTY
from filtering.delivery.pull_window import FilterDataInForce, PullWindow, UncertainRange
from filtering.delivery.topic_filters import BlockResult, TopicFilters, UncertainEntries, count_lost_pulls
from filtering.frozen import frozen
from filtering.names import is_lmq
from filtering.subscriptions.events import GroupTopic
from filtering.tags_code import DELAY_PROPERTY, SCHEDULE_TOPIC, entry_tags_codes, tags_codes
from schemas.arrow_batches import dictionary_column, repeated
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.table import DataFile, DataFileWriter
from schemas.delta.warehouse import Warehouse
from schemas.messages.commitlog_rows import (
    NUMBERS,
    Bodies,
    CommitlogRows,
    Messages,
    TopicBatch,
    TopicBatches,
    store_dates,
)
from schemas.messages.pop_json import pop_records
from schemas.messages.stored_messages import (
    WHOLE_LOG,
    MultiDispatched,
    StoredEntries,
    StoredRange,
    multi_dispatched,
    read_entries,
    read_messages,
)
from schemas.messages.traces import TraceReader
from schemas.rocketmq_store.commitlog_walk import Damage, Records, Walk
from schemas.rocketmq_store.recovery import is_unfinished
from schemas.rocketmq_store.segments import LogRange
from schemas.spark_tasks import Session, Worker, run_tasks, this_worker
from schemas.storage import Storage
from schemas.tables import CONSUMEQUEUE, CONSUMPTIONS, POP_RECORDS, QUARANTINE

NOTHING: Mapping[Any, Any] = MappingProxyType({})
TopicItem = TypeVar("TopicItem", PullWindow, UncertainRange)


def by_topic(items: Iterable[TopicItem]) -> dict[str, list[TopicItem]]:
    """The items of each topic, in order."""
    grouped: defaultdict[str, list[TopicItem]] = defaultdict(list)
    for item in items:
        grouped[item.topic].append(item)
    return dict(grouped)


@frozen(eq=False)
class TopicWindows:
    """The pull windows that filter some messages, and the ranges of these that are uncertain, by topic."""

    windows: Mapping[str, Sequence[PullWindow]] = field(default_factory=dict)
    uncertain_ranges: Mapping[str, Sequence[UncertainRange]] = field(default_factory=dict)

    @classmethod
    def of(cls, windows: Iterable[PullWindow], uncertain_ranges: Iterable[UncertainRange] = ()) -> TopicWindows:
        return cls(by_topic(windows), by_topic(uncertain_ranges))


@frozen(eq=False)
class TopicWork:
    """The filters for the entries of one topic. ``recipients``: a RECIPIENT for each pull window of ``filters``.

    ``instants`` (ms, ascending): times for which the end of each queue is noted. ``hooks``: the filter hooks of a
    window's client, by the window's number. ``clients_take_empty_bodies``: see RocketMQVersion.
    """

    filters: TopicFilters
    recipients: pa.StructArray
    instants: Int64s
    hooks: Mapping[int, Sequence[Hook]]
    clients_take_empty_bodies: bool = True


def works_by_topic(
    broker: BrokerConfig,
    filtered_by: TopicWindows,
    filter_data: Mapping[str, Sequence[FilterDataInForce]] = NOTHING,
    instants: Mapping[str, Int64s] = NOTHING,
    hooks: Mapping[GroupTopic, Sequence[Hook]] = NOTHING,
) -> dict[str, TopicWork]:
    """The work for each topic that has any of these, which are by topic; only ``hooks`` are by group and topic."""
    m, takes_empty = broker.bloom_filter.m, broker.version.clients_take_empty_bodies
    windows, uncertain_ranges = filtered_by.windows, filtered_by.uncertain_ranges
    works = {}
    for topic in windows.keys() | uncertain_ranges.keys() | filter_data.keys() | instants.keys():
        topic_windows = windows.get(topic, ())
        filters = TopicFilters(m, filter_data.get(topic, ()), topic_windows, uncertain_ranges.get(topic, ()))
        window_recipients = recipients(
            [window.consumer_group for window in topic_windows],
            [window.subscription_from for window in topic_windows],
            [window.available_at for window in topic_windows],
        )
        keys = [window.key for window in topic_windows]
        hook_by_number = {number: hooks[key] for number, key in enumerate(keys) if key in hooks}
        works[topic] = TopicWork(
            filters, window_recipients, instants.get(topic, NO_INSTANTS), hook_by_number, takes_empty
        )
    return works


@frozen(eq=False)
class Work:
    """The work of a task. ``tables``: folders of the tables to write, by name. ``topics``: the filters by topic.

    Threads share it: filters do not change while they run, and copies of thousands of topics take seconds.
    """

    run: str
    tables: Mapping[str, Storage]
    topics: Mapping[str, TopicWork]
    delay_levels: tuple[int, ...]

    def __deepcopy__(self, _memo: dict[int, Any]) -> Work:
        return self

    @cached_property
    def wanted(self) -> dict[str, tuple[str, ...]]:
        """The properties that filters read, by topic."""
        return {topic: work.filters.properties for topic, work in self.topics.items()}


@dataclass(eq=False)
class TopicCounts:
    """The summed BlockResult counts of one topic.

    ``queue_ids`` are ascending. ``scanned`` is windows x queues, ``counts`` windows x queues x WINDOW_COUNTS.
    ``uncertain``: by queue id, the uncertain entries of the blocks that have any.
    """

    queue_ids: Int32s
    scanned: Int64s
    counts: Int64s
    uncertain: Mapping[int, Sequence[UncertainEntries]]

    def add(self, other: TopicCounts) -> None:
        """Adds the counts of other blocks of the topic."""
        if np.array_equal(self.queue_ids, other.queue_ids):
            self.scanned += other.scanned
            self.counts += other.counts
        else:
            self._widen(np.union1d(self.queue_ids, other.queue_ids))
            columns = np.searchsorted(self.queue_ids, other.queue_ids)
            self.scanned[:, columns] += other.scanned
            self.counts[:, columns] += other.counts
        self.uncertain = {
            queue_id: [*self.uncertain.get(queue_id, ()), *other.uncertain.get(queue_id, ())]
            for queue_id in self.uncertain.keys() | other.uncertain.keys()
        }

    def _widen(self, queue_ids: Int32s) -> None:
        """Adds queues in which nothing was counted yet."""
        before = self.scanned, self.counts
        columns = np.searchsorted(queue_ids, self.queue_ids)
        self.queue_ids = queue_ids
        self.scanned, self.counts = (
            np.zeros((len(counts), len(queue_ids), *counts.shape[2:]), np.int64) for counts in before
        )
        self.scanned[:, columns], self.counts[:, columns] = before


@dataclass
class TaskResult:
    """The result of a task. ``files`` are by table name, ``queues`` by topic and queue id, ``counts`` by topic.

    ``in_lost_pulls``: the uncertain deliveries that clients may have lost with a message without a body.
    ``is_multi_dispatched``: a message may have entries in LMQs, too. ``in_lmqs``: their number, once they are made.
    ``workers``: those that ran the tasks.
    """

    files: defaultdict[str, list[DataFile]] = field(default_factory=lambda: defaultdict(list))
    queues: Queues = field(default_factory=dict)
    counts: dict[str, TopicCounts] = field(default_factory=dict)
    damaged_bodies: int = 0
    in_lost_pulls: int = 0
    is_multi_dispatched: bool = False
    in_lmqs: int = 0
    workers: set[Worker] = field(default_factory=set)

    def add(self, other: TaskResult) -> None:
        """Adds the result of another task with the same work, which reads later messages."""
        self.add_totals(other)
        for name, files in other.files.items():
            self.files[name] += files
        for queue, queue_counts in other.queues.items():
            for progress in queue_counts:
                add_progress(self.queues, queue, progress)
        for topic, counts in other.counts.items():
            self.add_counts(topic, counts)

    def add_counts(self, topic: str, counts: TopicCounts) -> None:
        """Adds the counts of some blocks of a topic. They become part of this result."""
        known = self.counts.setdefault(topic, counts)
        if known is not counts:
            known.add(counts)

    def add_totals(self, other: TaskResult) -> None:
        """Adds the numbers that do not depend on windows."""
        self.damaged_bodies += other.damaged_bodies
        self.in_lost_pulls += other.in_lost_pulls
        self.is_multi_dispatched |= other.is_multi_dispatched
        self.in_lmqs += other.in_lmqs
        self.workers |= other.workers


# New entries.


@frozen(eq=False)
class NewEntries:
    """n entries, ordered by topic, queue and queue offset.

    Entry i is that of message ``rows[i]`` of ``messages``. ``numbers`` has NUMBERS of the entries. Topic t has the
    entries ``bounds[t]`` to ``bounds[t + 1]`` (exclusive), at least one. ``have_units``: the broker writes a unit
    of the extension for each, with its filter bit map.
    """

    messages: Messages
    rows: Int64s
    numbers: Mapping[str, NDArray[Any]]
    tags_code: Int64s
    topics: Sequence[str]
    bounds: Sequence[int]
    have_units: bool = True

    @classmethod
    def of(cls, batch: TopicBatch, delay_levels: Sequence[int]) -> NewEntries:
        """The entries of the chosen messages. Prepared and rolled back transactions have none.

        ``delay_levels``: the broker's, in ms. The tags code of a scheduled message is its delivery time.
        """
        messages = batch.messages
        topic_entries = {
            topic: messages.by_queue(in_log_order)
            for topic, in_log_order in messages.rows_by_topic(batch.is_due & has_entry(messages.sys_flag))
        }
        rows = np.concatenate([np.empty(0, np.int64), *topic_entries.values()])
        tags_code = np.array(tags_codes(messages.named[TAGS_PROPERTY].take(pa.array(rows))))
        bounds = np.cumsum([0, *map(len, topic_entries.values())]).tolist()
        topics = list(topic_entries)
        if SCHEDULE_TOPIC in topic_entries:
            scheduled = topics.index(SCHEDULE_TOPIC)
            codes = _scheduled_tags_codes(messages, topic_entries[SCHEDULE_TOPIC], delay_levels)
            tags_code[bounds[scheduled] : bounds[scheduled + 1]] = codes
        return cls(messages, rows, {name: getattr(messages, name)[rows] for name in NUMBERS}, tags_code, topics, bounds)

    @classmethod
    def in_lmqs(cls, part: MultiDispatched, dispatch: MultiDispatch) -> NewEntries:
        """The entries of messages in LMQs. The broker writes no unit of the extension for them."""
        lmq_entries = [place for place in part.entries(dispatch) if is_lmq(place[1])]
        at, names, *places = zip(*lmq_entries, strict=True) if lmq_entries else ((), (), (), ())
        topics = sorted(set(names))
        number = {topic: i for i, topic in enumerate(topics)}
        topic_of = np.array([number[name] for name in names], np.int64)
        queue_id, queue_offset = np.array(places[0], np.int32), np.array(places[1], np.int64)
        order = np.lexsort((queue_offset, queue_id, topic_of))
        rows = np.array(at, np.int64)[order]
        numbers = {name: getattr(part.messages, name)[rows] for name in NUMBERS}
        numbers |= {"queue_id": queue_id[order], "queue_offset": queue_offset[order]}
        bounds = np.cumsum([0, *np.bincount(topic_of, minlength=len(topics))]).tolist()
        return cls(part.messages, rows, numbers, part.tags_code[rows], topics, bounds, have_units=False)

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, properties: Mapping[str, Sequence[str]]) -> Iterator[Entries]:
        """The entries of each topic. ``properties``: by topic, the message properties that its filters read."""
        numbers = self.numbers
        for number, topic in enumerate(self.topics):
            rows = slice(self.bounds[number], self.bounds[number + 1])
            yield Entries(
                topic,
                numbers["queue_id"][rows],
                numbers["queue_offset"][rows],
                numbers["commitlog_offset"][rows],
                numbers["store_size"][rows],
                self.tags_code[rows],
                numbers["store_timestamp"][rows],
                self.messages.properties(properties.get(topic, ()), self.rows[rows]),
                None if self.have_units else pa.nulls(len(self.rows[rows]), pa.binary()),
                without_body=np.flatnonzero(numbers["body_length"][rows] == 0),
                reconsume_times=numbers["reconsume_times"][rows],
            )

    def table_rows(self, run: str, bit_maps: Sequence[pa.BinaryArray | None]) -> pa.RecordBatch:
        """Rows of consumequeue. ``bit_maps``: the filter bit maps of each topic, None if it has none."""
        sizes = np.diff(self.bounds)
        columns = {name: pa.array(self.numbers[name]) for name in ("queue_id", "queue_offset", "commitlog_offset")}
        columns |= {
            "topic": dictionary_column(self.topics, np.repeat(np.arange(len(sizes)), sizes)),
            "size": pa.array(self.numbers["store_size"]),
            "tags_code": pa.array(self.tags_code),
            "store_timestamp": pa.array(self.numbers["store_timestamp"]),
            "store_date": store_dates(self.numbers["store_timestamp"]),
            "run": repeated(run, len(self)),
        }
        if any(topic_bit_maps is not None for topic_bit_maps in bit_maps):
            columns["filter_bit_map"] = pa.concat_arrays(
                pa.nulls(size, pa.binary()) if topic_bit_maps is None else topic_bit_maps
                for topic_bit_maps, size in zip(bit_maps, sizes.tolist(), strict=True)
            )
        return CONSUMEQUEUE.batch(columns, len(self))


def _scheduled_tags_codes(messages: Messages, rows: Int64s, delay_levels: Sequence[int]) -> pa.Int64Array:
    """The tags codes of some messages of SCHEDULE_TOPIC."""
    tags = messages.named[TAGS_PROPERTY].take(pa.array(rows))
    delays = messages.properties([DELAY_PROPERTY], rows)
    if not delays:
        return tags_codes(tags)
    times = pa.array(messages.store_timestamp[rows])
    topics = pa.repeat(SCHEDULE_TOPIC, len(rows))
    return entry_tags_codes(topics, tags, delays[DELAY_PROPERTY].text_of_each(), times, delay_levels)


WRITTEN_BY_TASKS = (COMMITLOG, POP_RECORDS, CONSUMEQUEUE, DELIVERY_BLOCKS, QUARANTINE, CONSUMPTIONS)
TABLES_OF_LOG = (COMMITLOG, POP_RECORDS, QUARANTINE, CONSUMPTIONS)
"""Those with what the log has. The others follow from it."""


# The writer.


class NightWriter:
    """Collects messages, filters them in large batches, and writes files of the tables."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._writers = {
            table.name: DataFileWriter(table, work.tables[table.name])
            for table in WRITTEN_BY_TASKS
            if table.name in work.tables
        }
        self._batches = TopicBatches()
        self._waiting_rows: list[pa.RecordBatch] = []
        self._waiting_pop_records: list[pa.RecordBatch] = []
        self._waiting_blocks: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self.result = TaskResult()

    def add(self, messages: Messages, rows: pa.RecordBatch | None = None) -> None:
        """Adds messages in the order of the log. ``rows``: their rows of commitlog; None if they are stored already."""
        if rows is not None:
            self._waiting_rows.append(rows)
            self.result.damaged_bodies += rows["body_is_damaged"].true_count
        self._write(self._batches.add(messages))

    def add_pop_records(self, rows: pa.RecordBatch | None) -> None:
        """Adds what the broker wrote down of pops in the messages that are added next."""
        if rows is not None:
            self._waiting_pop_records.append(rows)

    def consume(self, consumptions: pa.RecordBatch, bad: Sequence[Mapping[str, object]]) -> None:
        """Writes what traces say of consumptions, and rows of quarantine for bad ones."""
        if consumptions.num_rows:
            self._writers[CONSUMPTIONS.name].write([consumptions])
        if bad:
            self.quarantine(bad)

    def quarantine(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Writes rows of quarantine, which lack the run."""
        self._writers[QUARANTINE.name].write([QUARANTINE.rows_batch([{**row, "run": self._work.run} for row in rows])])

    def add_entries(self, entries: NewEntries) -> None:
        """Writes rows of consumequeue, and filters the entries."""
        if len(entries):
            bit_maps = [self._filter_block(block) for block in entries.blocks(self._work.wanted)]
            self._writers[CONSUMEQUEUE.name].write([entries.table_rows(self._work.run, bit_maps)])

    def filter_stored(self, entries: Entries) -> None:
        """Filters entries that are stored already."""
        work = self._work.topics.get(entries.topic)
        if work is not None and len(entries):
            self._pack(entries, work, work.filters.run(entries))

    def close(self) -> TaskResult:
        """Writes the remaining messages. Returns the result."""
        self._write(self._batches.rest())
        self._flush_blocks()
        for name, writer in self._writers.items():
            self.result.files[name] += writer.close()
        self.result.workers.add(this_worker())
        return self.result

    def _write(self, batch: TopicBatch | None) -> None:
        """Writes the waiting rows of commitlog and pop_records, and filters a batch."""
        if batch is None:
            return
        if self._waiting_rows:
            self._writers[COMMITLOG.name].write(self._waiting_rows)
            self._waiting_rows = []
        if self._waiting_pop_records:
            self._writers[POP_RECORDS.name].write(self._waiting_pop_records)
            self._waiting_pop_records = []
        if CONSUMEQUEUE.name in self._writers:
            self.result.is_multi_dispatched |= batch.messages.may_have(MULTI_QUEUE_OFFSET)
            self.add_entries(NewEntries.of(batch, self._work.delay_levels))

    def _flush_blocks(self) -> None:
        """Writes delivery blocks as one row group. Each small topic has its own block."""
        if self._waiting_blocks:
            self._writers[DELIVERY_BLOCKS.name].write(self._waiting_blocks)
        self._waiting_blocks, self._waiting_bytes = [], 0

    def _filter_block(self, entries: Entries) -> pa.BinaryArray | None:
        """Filters the new entries of a topic, and packs their deliveries. Returns their filter bit maps."""
        work = self._work.topics.get(entries.topic)
        self._note_queues(entries, work)
        if work is None:
            return None
        filtered = work.filters.run(entries)
        self._pack(entries, work, filtered)
        return filtered.bit_maps

    def _pack(self, entries: Entries, work: TopicWork, filtered: BlockResult) -> None:
        """Asks the hooks of clients, packs the deliveries into a block, and adds the counts."""
        outcomes = {
            Outcome.DELIVERED: filtered.delivered,
            Outcome.DROPPED_BY_CLIENT: filtered.dropped_by_client,
            Outcome.DEAD: filtered.dead,
        }
        if work.hooks and entries.rows is not None:
            delivered, dropped = after_hooks(filtered.delivered, work.hooks, entries.rows)
            outcomes |= {Outcome.DELIVERED: delivered, Outcome.DROPPED_BY_HOOK: dropped}
            _count_dropped(dropped, filtered, entries)
        if len(entries.without_body) and not work.clients_take_empty_bodies:
            count_lost_pulls(outcomes[Outcome.DELIVERED], entries, filtered.counts)
            self.result.in_lost_pulls += int(filtered.counts[:, :, topic_filters.UNCERTAIN].sum())
        matches = [block_matches(sets, name, work.recipients) for name, sets in outcomes.items() if len(sets)]
        for row in block_rows(entries, pa.concat_arrays(matches)) if matches else ():
            block = DELIVERY_BLOCKS.batch(row | {"run": pa.array([self._work.run])}, 1)
            self._waiting_blocks.append(block)
            self._waiting_bytes += block.nbytes
            if self._waiting_bytes >= BYTES_IN_A_ROW:
                self._flush_blocks()
        uncertain = {
            queue_id: [entries_in_doubt]
            for queue_id, entries_in_doubt in zip(filtered.queue_ids.tolist(), filtered.uncertain, strict=False)
            if entries_in_doubt
        }
        scanned = filtered.scanned[filtered.mask_of]
        self.result.add_counts(entries.topic, TopicCounts(filtered.queue_ids, scanned, filtered.counts, uncertain))

    def _note_queues(self, entries: Entries, work: TopicWork | None) -> None:
        instants = work.instants if work is not None else NO_INSTANTS
        for queue_id, progress in progress_of_block(entries, instants):
            add_progress(self.result.queues, (entries.topic, queue_id), progress)


def _count_dropped(dropped: MatchSets, filtered: BlockResult, entries: Entries) -> None:
    """Counts the messages that hooks dropped. They were not delivered."""
    _, bounds = entries.queue_bounds
    for match_set in dropped:
        windows, count = list(match_set.windows), np.diff(np.searchsorted(match_set.positions, bounds))
        filtered.counts[windows, :, topic_filters.DROPPED_BY_HOOK] = count
        filtered.counts[windows, :, topic_filters.DELIVERED] -= count


# Ranges of a log.


DAMAGE_AT_ONCE = 16
REST_IS_MISSING = "the log goes on in the next segment, but the rest of this one is missing: copy the store again"


@frozen
class RangeResult:
    """The result of a range. ``first`` and ``reached`` are those of its Walk.

    ``settled_to``: the physical offset from which the next night reads. It is before ``reached`` if the log ends with
    bytes that may still change.
    """

    first: int | None
    reached: int
    settled_to: int
    result: TaskResult


def read_range(part: LogRange, store: Storage, work: Work, bodies: Bodies) -> RangeResult:
    """Reads a range of a log, and writes files of the tables in ``work``."""
    writer = NightWriter(work)
    rows = CommitlogRows(work.run, bodies, work.wanted)
    traces = TraceReader(work.run)
    walk = Walk(part.segment, part.start, part.stop, part.data_end, part.synchronise)
    unsettled_from: int | None = None
    damage: list[Damage] = []
    for piece in walk:
        if isinstance(piece, Damage):
            unsettled_from = piece.offset if unsettled_from is None else unsettled_from
            damage.append(piece)
            if len(damage) == DAMAGE_AT_ONCE:
                _quarantine(writer, damage)
            continue
        unsettled_from = None
        records: Records = piece
        at_the_end = part.ends_log and walk.reached >= part.data_end < part.segment.end
        if at_the_end and is_unfinished(piece, part.data_end, store, part.seen):
            records = piece.first(len(piece) - 1)
            unsettled_from = piece.offset + int(piece.at("start")[-1])
        if len(records):
            batch, messages = rows.rows(records)
            is_damaged = batch["body_is_damaged"].to_numpy(zero_copy_only=False)
            writer.consume(*traces.read(records.log, records.at("body"), messages, is_damaged))
            if POP_RECORDS.name in work.tables:
                pops, unreadable = pop_records(records, messages, is_damaged, work.run)
                writer.add_pop_records(pops)
                damage += unreadable
            writer.add(messages, batch)
    reached = _end_of_segment(walk, part.followed_by)
    if part.followed_by is not None and reached < part.followed_by:
        damage.append(Damage(part.segment.path, reached, REST_IS_MISSING, b""))
    _quarantine(writer, damage)
    settled_to = walk.reached if unsettled_from is None or not part.ends_log else unsettled_from
    return RangeResult(walk.first, walk.reached, settled_to, writer.close())


def _end_of_segment(walk: Walk, followed_by: int | None) -> int:
    """Where the walk ended; behind a cut file if the filler in it says so, and the next segment does not deny it."""
    if walk.filled_to is None or followed_by is None or walk.filled_to > followed_by:
        return walk.reached
    return max(walk.reached, walk.filled_to)


def _quarantine(writer: NightWriter, damage: list[Damage]) -> None:
    if damage:
        writer.quarantine([vars(piece) for piece in damage])
        damage.clear()


# Stored messages.


def make_entries(part: StoredRange, commitlog: Storage, consumequeue: Storage, work: Work) -> TaskResult:
    """Makes the entries of those stored messages of a range that have none, and filters them."""
    writer = NightWriter(work)
    names = {name for topic_names in work.wanted.values() for name in topic_names} | {DELAY_PROPERTY}
    entries = StoredEntries.read(consumequeue, part.entry_files, part.offsets, bit_maps=False)
    for messages in read_messages(commitlog, part.message_files, part.offsets, None, names):
        _, has_entry = entries.find(messages.commitlog_offset)
        writer.add(messages.take(np.flatnonzero(~has_entry)) if has_entry.any() else messages)
    return writer.close()


def filter_entries(part: StoredRange, commitlog: Storage, consumequeue: Storage, work: Work) -> TaskResult:
    """Filters those stored messages of a range that have entries."""
    writer = NightWriter(work)
    for entries in read_entries(part, commitlog, consumequeue, work.wanted):
        writer.filter_stored(entries)
    return writer.close()


def run_on_stored(
    task: Callable[..., TaskResult],
    ranges: Sequence[StoredRange],
    warehouse: Warehouse,
    work: Work,
    session: Session,
) -> TaskResult:
    """Runs :func:`make_entries` or :func:`filter_entries` for some ranges of stored messages, as parallel tasks."""
    commitlog, consumequeue = (warehouse.log(table).storage for table in (COMMITLOG, CONSUMEQUEUE))
    run = partial(task, commitlog=commitlog, consumequeue=consumequeue, work=work)
    total = TaskResult()
    for result in run_tasks(ranges, run, sum(part.size for part in ranges), session):
        total.add(result)
    return total


def make_lmq_entries(
    stored: Sequence[StoredRange],
    new: Sequence[str],
    warehouse: Warehouse,
    work: Work,
    dispatch: MultiDispatch,
    broker: BrokerConfig,
) -> TaskResult:
    """Makes the entries of messages in LMQs, and filters them: of stored messages, and of those in ``new`` files.

    In the order of the log: where an entry is depends on those before it.
    """
    commitlog, consumequeue = (warehouse.log(table).storage for table in (COMMITLOG, CONSUMEQUEUE))
    names = {name for topic_names in work.wanted.values() for name in topic_names}
    writer = NightWriter(work)
    for part in stored:
        messages = multi_dispatched(commitlog, part.message_files, part.offsets, names, broker)
        if messages is not None:
            entries = StoredEntries.read(consumequeue, part.entry_files, part.offsets, bit_maps=False)
            _, has_entry = entries.find(messages.messages.commitlog_offset)
            writer.add_entries(NewEntries.in_lmqs(messages.without(has_entry), dispatch))
    for path in new:
        messages = multi_dispatched(commitlog, [path], WHOLE_LOG, names, broker)
        if messages is not None:
            writer.add_entries(NewEntries.in_lmqs(messages, dispatch))
    result = writer.close()
    result.in_lmqs = sum(file.rows for file in result.files[CONSUMEQUEUE.name])
    return result
