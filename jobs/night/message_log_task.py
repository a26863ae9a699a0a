"""Reads a part of a message log on a worker: from lines or rows to rows of commitlog and quarantine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.delivery.entries import Int64s, among
from jobs.night.commit import Changes
from jobs.night.rows import RejectedLine, quarantined_lines, remove_lines
from schemas.arrow_batches import as_one_type, split
from schemas.commitlog import COMMITLOG
from schemas.delta.table import ROWS_OF_A_GROUP, DataFile, DataFileWriter
from schemas.messages.commitlog_rows import Bodies
from schemas.messages.message_log import LogPart, NumberedLines, ReadFile, digest_of, files, log_forms, parts
from schemas.messages.message_log_rows import POSITION, LogForm, MessageBatch, MessageLogRows, RejectedRow
from schemas.messages.stored_messages import PhysicalRange
from schemas.rocketmq_store.segments import CommitLogError
from schemas.run_ledger import NUMBERED_LINES, LedgerEntry
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage
from schemas.tables import QUARANTINE


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
    """The number of messages of each topic in a part that get a consume queue entry."""
    counts: Counter[str] = Counter()
    for batch in part.messages()[0]:
        topics, names = batch.topics()
        of_topics = np.bincount(topics[batch.has_entry()], minlength=len(names))
        counts.update(dict(zip(names, of_topics.tolist(), strict=True)))
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
    for batch, batch_offsets in zip(batches, offsets, strict=True):
        is_known = among(batch_offsets, known)
        new.append(rows.rows(batch.take(np.flatnonzero(~is_known)) if is_known.any() else batch))
    log, lines = (DataFileWriter(table, storages[table.name]) for table in (COMMITLOG, QUARANTINE))
    for some in split(_in_log_order(new), ROWS_OF_A_GROUP):
        log.write(some)
    added = [{**line._asdict(), "run": run} for line in rejected if line not in quarantined]
    lines.write([QUARANTINE.rows_batch(added)])
    files = {COMMITLOG.name: log.close(), QUARANTINE.name: lines.close()}
    damaged = sum(batch["body_is_damaged"].true_count for batch in new)
    queue_offsets = np.concatenate([np.zeros(0, np.int64), *offsets])
    return PartResult(files, queue_offsets, [line for line in rejected if line in quarantined], damaged)


def _with_positions(batches: Sequence[MessageBatch], task: PartTask) -> list[MessageBatch]:
    """The messages with the positions that follow from the order of lines: each topic has queue 0.

    Those without a consume queue entry have the queue offset 0, as a broker stores them.
    """
    if not batches:
        return []
    topics = [batch.topics() for batch in batches]
    number_of: dict[str, int] = {}
    with_offsets = [
        np.array([number_of.setdefault(name, len(number_of)) for name in names], np.int64)[topic_of]
        for topic_of, names in topics
    ]
    topic_of = np.concatenate(with_offsets)
    lines = np.concatenate([batch.lines for batch in batches])
    queued = np.flatnonzero(np.concatenate([batch.has_entry() for batch in batches]))
    order = queued[np.lexsort((lines[queued], topic_of[queued]))]
    counts = np.bincount(topic_of[queued], minlength=len(number_of))
    queue_offsets = np.zeros(len(lines), np.int64)
    ends = np.array([task.queue_ends.get(name, 0) for name in number_of], np.int64)
    queue_offsets[order] = np.arange(len(order)) + np.repeat(ends - (np.cumsum(counts) - counts), counts)
    bounds = np.cumsum([len(batch) for batch in batches])[:-1]
    return [
        batch.with_columns(
            {
                "queue_id": pa.array(np.zeros(len(batch), np.int32)),
                "queue_offset": pa.array(batch_offsets),
                "commitlog_offset": pa.array(batch.lines - task.part.first + task.end),
            }
        )
        for batch, batch_offsets in zip(batches, np.split(queue_offsets, bounds), strict=True)
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
    for batch, is_repeated_in_batch in zip(
        batches, np.split(is_repeated, np.cumsum(list(map(len, offsets)))[:-1]), strict=True
    ):
        kept.append(batch.take(np.flatnonzero(~is_repeated_in_batch)) if is_repeated_in_batch.any() else batch)
        for line in batch.lines[is_repeated_in_batch].tolist():
            rejected.append(RejectedRow(line, "another message has this commitlog_offset", batch.bytes_of(line)))
    return kept, rejected


def _in_log_order(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows by physical offset."""
    offsets = np.concatenate([np.zeros(0, np.int64), *(batch["commitlog_offset"].to_numpy() for batch in batches)])
    if np.all(offsets[1:] >= offsets[:-1]):
        return list(batches)
    columns = [
        pa.chunked_array(as_one_type([batch[name] for batch in batches])) for name in COMMITLOG.file_schema.names
    ]
    rows = pa.Table.from_arrays(columns, names=COMMITLOG.file_schema.names).unify_dictionaries()
    taken: list[pa.RecordBatch] = rows.take(pa.array(np.argsort(offsets, kind="stable"))).combine_chunks().to_batches()
    return taken


# The driver: all parts are the new messages of a night.


_TIMES_AS_LONG = 8
"""A message log takes about so many times as long as a broker's log with as many bytes."""


class IngestedLog(NamedTuple):
    """``new``: where the new messages are, if any. ``damaged_bodies`` of them do not match their checksum.

    ``numbered``: what nights have read of a log whose messages have no positions; None if they have.
    """

    has_messages: bool
    new: PhysicalRange | None
    damaged_bodies: int = 0
    numbered: NumberedLines | None = None


def ingest_message_log(
    source: Path, bodies: Bodies, last: LedgerEntry | None, changes: Changes, session: Session
) -> IngestedLog:
    """Adds the messages that commitlog does not have, and quarantines invalid lines.

    ``last``: the broker's last ledger entry. Raises CommitLogError if the log does not continue what nights have read.
    """
    changes.create_missing([COMMITLOG, QUARANTINE])
    parts = files(source)
    before = numbered_lines(last)
    forms = log_forms(parts, has_positions=before is None)
    has_positions = all(form.has_positions for form in forms.values())
    if has_positions and before is not None:
        raise CommitLogError(
            f"{source.name} has queue ids and offsets, and the log of earlier nights had none: leave them out, or give "
            "all messages with a new --warehouse"
        )
    if not has_positions and before is None:
        if last is not None and last.ingested_to is not None:
            raise CommitLogError(
                f"{source.name} has no {', '.join(POSITION)}, and the messages of earlier nights had them: write them, "
                "or give all messages with a new --warehouse"
            )
        before = NumberedLines()
    read_before = {file: before.read_of(file) for file in parts} if before is not None else {}
    log = [part for file in parts for part in _new_parts(file, forms[file], read_before.get(file))]
    stored = changes.rows(COMMITLOG, ["commitlog_offset"])
    first_lines = {file.name: read.next_line for file, read in read_before.items() if read is not None}
    quarantined = {
        line
        for line in quarantined_lines([file.name for file in parts], changes)
        if line.offset >= first_lines.get(line.source_file, 0)
    }
    size = sum(part.size for part in log) * _TIMES_AS_LONG
    tasks = list(map(PartTask, log))
    queue_ends: Counter[str] = Counter()
    if before is not None:
        queue_ends.update(before.queue_ends)
        tasks = []
        end = before.end
        for part, counts in zip(log, run_tasks(log, topic_counts, size, session), strict=True):
            tasks.append(PartTask(part, end=end, queue_ends=dict(queue_ends)))
            end += part.count
            queue_ends.update(counts)
    read = partial(
        read_part,
        storages={table.name: changes.warehouse.log(table).storage for table in (COMMITLOG, QUARANTINE)},
        run=changes.run,
        bodies=bodies,
        known=np.sort(stored["commitlog_offset"].to_numpy()),
        quarantined=quarantined,
    )
    results = list(run_tasks(tasks, read, size, session))
    for index, repeated in _repeated(results):
        results[index] = read(tasks[index]._replace(taken=repeated))
    remove_lines(quarantined.difference(*(result.still_rejected for result in results)), changes)
    for table in (QUARANTINE, COMMITLOG):
        changes.add_files(table, [file for result in results for file in result.files[table.name]])
    paths = {file.path for result in results for file in result.files[COMMITLOG.name]}
    added = [file for file in changes.files(COMMITLOG) if file.path in paths]
    has_messages = any(len(result.offsets) for result in results) or any(read_before.values())
    numbered = None
    if before is not None:
        numbered = _numbered_after(before, read_before, tasks, results, queue_ends)
    if not added:
        return IngestedLog(has_messages, None, numbered=numbered)
    new = (
        min(file.least["commitlog_offset"] for file in added),
        max(file.greatest["commitlog_offset"] for file in added) + 1,
    )
    return IngestedLog(has_messages, new, sum(result.damaged_bodies for result in results), numbered)


def numbered_lines(last: LedgerEntry | None) -> NumberedLines | None:
    """What the nights up to ``last`` have read of a message log without positions; None if there was none."""
    text = last.inputs.get(NUMBERED_LINES) if last is not None else None
    return NumberedLines.from_text(text) if text else None


def _new_parts(file: Path, form: LogForm, read: ReadFile | None) -> Iterator[LogPart]:
    """The parts of a file that no night has ``read``."""
    if read is None:
        return parts(file, form)
    return iter(()) if file.suffix == ".parquet" else parts(file, form, read.size, read.next_line)


def _numbered_after(
    before: NumberedLines,
    read_before: Mapping[Path, ReadFile | None],
    tasks: Sequence[PartTask],
    results: Sequence[PartResult],
    queue_ends: Mapping[str, int],
) -> NumberedLines:
    """What nights have read, with this one."""
    ends = {file: (known.size, known.next_line) for file, known in read_before.items() if known is not None}
    end = before.end
    last = {task.part.file: (task, result) for task, result in zip(tasks, results, strict=True)}
    for file, (task, result) in last.items():
        end = task.end + task.part.count
        ends[file] = task.part.end(is_last_whole=bool(np.any(result.offsets == end - 1)))
    read = {known.name: known for known in before.files}
    for file, (size, next_line) in ends.items():
        read[file.name] = ReadFile(file.name, size, digest_of(file, size), next_line)
    return NumberedLines(end, queue_ends, list(read.values()))


def _repeated(results: Sequence[PartResult]) -> list[tuple[int, NDArray[np.int64]]]:
    """The parts with messages whose physical offsets earlier parts have: their numbers, and those offsets."""
    offsets = np.concatenate([result.offsets for result in results] or [np.zeros(0, np.int64)])
    part_of = np.repeat(np.arange(len(results)), [len(result.offsets) for result in results])
    order = np.argsort(offsets, kind="stable")
    again = order[1:][offsets[order[1:]] == offsets[order[:-1]]]
    return [(part, offsets[again[part_of[again] == part]]) for part in np.unique(part_of[again]).tolist()]
