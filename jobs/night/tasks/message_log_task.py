"""Reads a part of a message log on a worker: from lines or rows to rows of commitlog and quarantine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from filtering.delivery.entries import Int64s, among
from jobs.night.rows.rejected import RejectedLine
from schemas.arrow_batches import of_one_type, split
from schemas.commitlog import COMMITLOG
from schemas.delta.data_files import ROWS_OF_A_GROUP, DataFile, DataFileWriter
from schemas.messages.bodies import Bodies
from schemas.messages.message_checks import RejectedRow
from schemas.messages.message_log import LogPart
from schemas.messages.message_log_rows import MessageBatch, MessageLogRows
from schemas.quarantine import QUARANTINE
from schemas.storage import Storage


class PartResult(NamedTuple):
    """The files that a part made, by table, and the physical offsets of all of its messages.

    ``still_rejected``: the rejected lines that were in quarantine before. ``damaged_bodies``: the number of new
    messages whose body does not match its checksum."""

    files: dict[str, list[DataFile]]
    offsets: Int64s
    still_rejected: list[RejectedLine]
    damaged_bodies: int


class PartTask(NamedTuple):
    """A part of a message log. ``taken``: the physical offsets of messages in it that earlier parts have, too.

    Where the log has no positions: ``end``, the physical offset of the part's first line; and ``queue_ends``, the queue
    offset of the next message of each topic.
    """

    part: LogPart
    taken: Int64s = np.zeros(0, np.int64)
    end: int = 0
    queue_ends: Mapping[str, int] = {}


def topic_counts(part: LogPart) -> Counter[str]:
    """The number of messages of each topic in a part."""
    counts: Counter[str] = Counter()
    for batch in part.messages()[0]:
        topics, names = batch.topics()
        counts.update(dict(zip(names, np.bincount(topics, minlength=len(names)).tolist(), strict=True)))
    return counts


def read_part(
    task: PartTask,
    storages: Mapping[str, Storage],
    run: str,
    bodies: Bodies,
    known: Int64s,
    quarantined: Set[RejectedLine],
) -> PartResult:
    """Writes the messages of a part that commitlog does not have, and the lines that quarantine does not have.

    ``known``: the physical offsets in commitlog, sorted.
    """
    part = task.part
    batches, rejected_rows = part.messages()
    if not part.form.has_positions:
        batches = _with_positions(batches, task)
    batches, repeated = _without_repeated(batches, task.taken)
    rejected = [
        RejectedLine(part.file.name, row.number, row.reason, row.bytes)
        for row in sorted([*rejected_rows, *repeated], key=lambda row: row.number)
    ]
    offsets = [batch.numbers("commitlog_offset") for batch in batches]
    rows = MessageLogRows(run, bodies)
    new = []
    for batch, of_batch in zip(batches, offsets, strict=True):
        is_known = among(of_batch, known)
        new.append(rows.rows(batch.take(np.flatnonzero(~is_known)) if is_known.any() else batch))
    log, lines = (DataFileWriter(table, storages[table.name]) for table in (COMMITLOG, QUARANTINE))
    for some in split(_in_log_order(new), ROWS_OF_A_GROUP):
        log.write(some)
    added = [{**line._asdict(), "run": run} for line in rejected if line not in quarantined]
    lines.write([QUARANTINE.rows_batch(added)])
    files = {COMMITLOG.name: log.close(), QUARANTINE.name: lines.close()}
    damaged = sum(batch["body_is_damaged"].true_count for batch in new)
    found = np.concatenate([np.zeros(0, np.int64), *offsets])
    return PartResult(files, found, [line for line in rejected if line in quarantined], damaged)


def _with_positions(batches: Sequence[MessageBatch], task: PartTask) -> list[MessageBatch]:
    """The messages with the positions that follow from the order of lines: each topic has queue 0."""
    if not batches:
        return []
    topics = [batch.topics() for batch in batches]
    number_of: dict[str, int] = {}
    of_batches = [
        np.array([number_of.setdefault(name, len(number_of)) for name in names], np.int64)[topic_of]
        for topic_of, names in topics
    ]
    topic_of = np.concatenate(of_batches)
    lines = np.concatenate([batch.lines for batch in batches])
    order = np.lexsort((lines, topic_of))
    counts = np.bincount(topic_of, minlength=len(number_of))
    queue_offsets = np.empty(len(lines), np.int64)
    ends = np.array([task.queue_ends.get(name, 0) for name in number_of], np.int64)
    queue_offsets[order] = np.arange(len(lines)) + np.repeat(ends - (np.cumsum(counts) - counts), counts)
    bounds = np.cumsum([len(batch) for batch in batches])[:-1]
    return [
        batch.with_columns(
            {
                "queue_id": pa.array(np.zeros(len(batch), np.int32)),
                "queue_offset": pa.array(of_batch),
                "commitlog_offset": pa.array(batch.lines - task.part.first + task.end),
            }
        )
        for batch, of_batch in zip(batches, np.split(queue_offsets, bounds), strict=True)
    ]


def _without_repeated(batches: Sequence[MessageBatch], taken: Int64s) -> tuple[list[MessageBatch], list[RejectedRow]]:
    """The messages whose physical offset no earlier one has and that is not ``taken``, and the lines of the others."""
    offsets = [batch.numbers("commitlog_offset") for batch in batches]
    all_offsets = np.concatenate([np.zeros(0, np.int64), *offsets])
    if not len(taken) and np.all(all_offsets[1:] > all_offsets[:-1]):
        return list(batches), []
    lines = np.concatenate([np.zeros(0, np.int64), *(batch.lines for batch in batches)])
    order = np.lexsort((lines, all_offsets))
    is_repeated = np.zeros(len(lines), bool)
    is_repeated[order[1:]] = all_offsets[order[1:]] == all_offsets[order[:-1]]
    is_repeated |= among(all_offsets, np.unique(taken))
    kept: list[MessageBatch] = []
    rejected: list[RejectedRow] = []
    for batch, of_batch in zip(batches, np.split(is_repeated, np.cumsum(list(map(len, offsets)))[:-1]), strict=True):
        kept.append(batch.take(np.flatnonzero(~of_batch)) if of_batch.any() else batch)
        for line in batch.lines[of_batch].tolist():
            rejected.append(RejectedRow(line, "another message has this commitlog_offset", batch.bytes_of(line)))
    return kept, rejected


def _in_log_order(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows by physical offset."""
    offsets = np.concatenate([np.zeros(0, np.int64), *(batch["commitlog_offset"].to_numpy() for batch in batches)])
    if np.all(offsets[1:] >= offsets[:-1]):
        return list(batches)
    columns = [
        pa.chunked_array(of_one_type([batch[name] for batch in batches])) for name in COMMITLOG.file_schema.names
    ]
    rows = pa.Table.from_arrays(columns, names=COMMITLOG.file_schema.names).unify_dictionaries()
    taken: list[pa.RecordBatch] = rows.take(pa.array(np.argsort(offsets, kind="stable"))).combine_chunks().to_batches()
    return taken
