"""Filters messages, writes rows of commitlog, consumequeue, delivery_blocks and quarantine, and counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from filtering.delivery import window_loops
from filtering.delivery.block_result import BlockResult
from filtering.delivery.block_schema import DELIVERED, DROPPED_BY_CLIENT, DROPPED_BY_HOOK
from filtering.delivery.delivery_blocks import BYTES_IN_A_ROW, block_matches, block_rows
from filtering.delivery.entries import Entries
from filtering.delivery.filter_hooks import after_hooks
from filtering.delivery.match_sets import MatchSets
from filtering.delivery.uncertain_entries import count_lost_pulls
from jobs.night.tasks.new_entries import NewEntries
from jobs.night.tasks.queue_progress import NO_INSTANTS, add_progress, progress_of_block
from jobs.night.tasks.work import TaskResult, TopicCounts, TopicWork, Work
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.data_files import DataFileWriter
from schemas.messages.columns import Messages
from schemas.messages.topic_batches import TopicBatch, TopicBatches
from schemas.quarantine import QUARANTINE

WRITTEN_BY_TASKS = (COMMITLOG, CONSUMEQUEUE, DELIVERY_BLOCKS, QUARANTINE)


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
        self._waiting_blocks: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self.result = TaskResult()

    def add(self, messages: Messages, rows: pa.RecordBatch | None = None) -> None:
        """Adds messages in the order of the log. ``rows``: their rows of commitlog; None if they are stored already."""
        if rows is not None:
            self._waiting_rows.append(rows)
            self.result.damaged_bodies += rows["body_is_damaged"].true_count
        self._write(self._batches.add(messages))

    def quarantine(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Writes rows of quarantine, which lack the run."""
        self._writers[QUARANTINE.name].write([QUARANTINE.rows_batch([{**row, "run": self._work.run} for row in rows])])

    def filter(self, entries: Entries) -> None:
        """Filters entries that are stored already."""
        work = self._work.topics.get(entries.topic)
        if work is not None and len(entries):
            self._deliver(entries, work, work.filters.run(entries))

    def close(self) -> TaskResult:
        """Writes the remaining messages. Returns the result."""
        self._write(self._batches.rest())
        self._flush_blocks()
        for name, writer in self._writers.items():
            self.result.files[name] += writer.close()
        return self.result

    def _write(self, batch: TopicBatch | None) -> None:
        """Writes the waiting rows of commitlog, and filters a batch."""
        if batch is None:
            return
        if self._waiting_rows:
            self._writers[COMMITLOG.name].write(self._waiting_rows)
            self._waiting_rows = []
        if CONSUMEQUEUE.name in self._writers:
            entries = NewEntries.of(batch, self._work.delay_levels)
            if len(entries):
                bit_maps = [self._dispatch(block) for block in entries.blocks(self._work.wanted)]
                self._writers[CONSUMEQUEUE.name].write([entries.table_rows(self._work.run, bit_maps)])

    def _flush_blocks(self) -> None:
        """Writes delivery blocks as one row group. Each small topic has its own block."""
        if self._waiting_blocks:
            self._writers[DELIVERY_BLOCKS.name].write(self._waiting_blocks)
        self._waiting_blocks, self._waiting_bytes = [], 0

    def _dispatch(self, entries: Entries) -> pa.BinaryArray | None:
        """Filters the new entries of a topic, and writes their deliveries. Returns their filter bit maps."""
        work = self._work.topics.get(entries.topic)
        self._note_queues(entries, work)
        if work is None:
            return None
        outcome = work.filters.run(entries)
        self._deliver(entries, work, outcome)
        return outcome.bit_maps

    def _deliver(self, entries: Entries, work: TopicWork, outcome: BlockResult) -> None:
        outcomes = {DELIVERED: outcome.delivered, DROPPED_BY_CLIENT: outcome.dropped_by_client}
        if work.hooks and entries.rows is not None:
            delivered, dropped = after_hooks(outcome.delivered, work.hooks, entries.rows)
            outcomes |= {DELIVERED: delivered, DROPPED_BY_HOOK: dropped}
            _count_dropped(dropped, outcome, entries)
        if len(entries.without_body) and not work.clients_take_empty_bodies:
            count_lost_pulls(outcomes[DELIVERED], entries, outcome.counts)
            self.result.in_lost_pulls += int(outcome.counts[:, :, window_loops.UNCERTAIN].sum())
        matches = [block_matches(sets, name, work.recipients) for name, sets in outcomes.items() if len(sets)]
        self.result.deliveries += int(outcome.counts[:, :, window_loops.DELIVERED].sum())
        for row in block_rows(entries, pa.concat_arrays(matches)) if matches else ():
            block = DELIVERY_BLOCKS.batch(row | {"run": pa.array([self._work.run])}, 1)
            self._waiting_blocks.append(block)
            self._waiting_bytes += block.nbytes
            if self._waiting_bytes >= BYTES_IN_A_ROW:
                self._flush_blocks()
        uncertain = {
            queue_id: [found]
            for queue_id, found in zip(outcome.queue_ids.tolist(), outcome.uncertain, strict=False)
            if found
        }
        scanned = outcome.scanned[outcome.mask_of]
        self.result.add_counts(entries.topic, TopicCounts(outcome.queue_ids, scanned, outcome.counts, uncertain))

    def _note_queues(self, entries: Entries, work: TopicWork | None) -> None:
        instants = work.instants if work is not None else NO_INSTANTS
        for queue_id, progress in progress_of_block(entries, instants):
            add_progress(self.result.queues, (entries.topic, queue_id), progress)


def _count_dropped(dropped: MatchSets, outcome: BlockResult, entries: Entries) -> None:
    """Counts the messages that hooks dropped. They were not delivered."""
    _, bounds = entries.queue_bounds
    for match_set in dropped:
        windows, count = list(match_set.windows), np.diff(np.searchsorted(match_set.positions, bounds))
        outcome.counts[windows, :, window_loops.DROPPED_BY_HOOK] = count
        outcome.counts[windows, :, window_loops.DELIVERED] -= count
