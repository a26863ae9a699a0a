"""Reads a message log (JSON lines or Parquet) as the new messages of a night."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobs.night.commit.changes import Changes
from jobs.night.rows.rejected import quarantined_lines, remove_lines
from jobs.night.tasks.message_log_task import PartResult, PartTask, read_part, topic_counts
from schemas.commitlog import COMMITLOG
from schemas.ledger_inputs import NUMBERED_LINES
from schemas.messages.bodies import Bodies
from schemas.messages.message_checks import POSITION, LogForm
from schemas.messages.message_log import LogPart, NumberedLines, ReadFile, digest_of, files, log_forms, parts
from schemas.messages.stored_messages import PhysicalRange
from schemas.quarantine import QUARANTINE
from schemas.rocketmq_store.commitlog.segments import CommitLogError
from schemas.run_ledger import LedgerEntry
from schemas.spark_tasks import Session, run_tasks

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
    found = files(source)
    before = numbered_lines(last)
    forms = log_forms(found, has_positions=before is None)
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
    read_before = {file: before.read_of(file) for file in found} if before is not None else {}
    log = [part for file in found for part in _new_parts(file, forms[file], read_before.get(file))]
    stored = changes.rows(COMMITLOG, ["commitlog_offset"])
    first_lines = {file.name: read.next_line for file, read in read_before.items() if read is not None}
    quarantined = {
        line
        for line in quarantined_lines([file.name for file in found], changes)
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
    return NumberedLines.of_text(text) if text else None


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
    for task, result in zip(tasks, results, strict=True):
        end = task.end + task.part.count
        ends[task.part.file] = task.part.end(is_last_whole=bool(np.any(result.offsets == end - 1)))
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
