"""Reads a message log (JSON lines or Parquet) as the new messages of a night."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobs.night.commit.changes import Changes
from jobs.night.rows.rejected import quarantined_lines, remove_lines
from jobs.night.tasks.message_log_task import PartResult, read_part
from schemas.commitlog import COMMITLOG
from schemas.messages.bodies import Bodies
from schemas.messages.message_log import files, parts
from schemas.messages.stored_messages import PhysicalRange
from schemas.quarantine import QUARANTINE
from schemas.spark_tasks import Session, run_tasks

_TIMES_AS_LONG = 8
"""A message log takes about so many times as long as a broker's log with as many bytes."""


class IngestedLog(NamedTuple):
    """``new``: where the new messages are, if any. ``damaged_bodies`` of them do not match their checksum."""

    has_messages: bool
    new: PhysicalRange | None
    damaged_bodies: int = 0


def ingest_message_log(source: Path, bodies: Bodies, changes: Changes, session: Session) -> IngestedLog:
    """Adds the messages that commitlog does not have, and quarantines invalid lines."""
    changes.create_missing([COMMITLOG, QUARANTINE])
    found = files(source)
    log = [part for file in found for part in parts(file)]
    stored = changes.rows(COMMITLOG, ["commitlog_offset"])
    quarantined = quarantined_lines([file.name for file in found], changes)
    read = partial(
        read_part,
        storages={table.name: changes.warehouse.log(table).storage for table in (COMMITLOG, QUARANTINE)},
        run=changes.run,
        bodies=bodies,
        known=np.sort(stored["commitlog_offset"].to_numpy()),
        quarantined=quarantined,
    )
    size = sum(file.stat().st_size for file in found)
    tasks = [(part, np.zeros(0, np.int64)) for part in log]
    results = list(run_tasks(tasks, read, size * _TIMES_AS_LONG, session))
    for index, repeated in _repeated(results):
        results[index] = read((log[index], repeated))
    remove_lines(quarantined.difference(*(result.still_rejected for result in results)), changes)
    for table in (QUARANTINE, COMMITLOG):
        changes.add_files(table, [file for result in results for file in result.files[table.name]])
    paths = {file.path for result in results for file in result.files[COMMITLOG.name]}
    added = [file for file in changes.files(COMMITLOG) if file.path in paths]
    has_messages = any(len(result.offsets) for result in results)
    if not added:
        return IngestedLog(has_messages, None)
    new = (
        min(file.least["commitlog_offset"] for file in added),
        max(file.greatest["commitlog_offset"] for file in added) + 1,
    )
    return IngestedLog(has_messages, new, sum(result.damaged_bodies for result in results))


def _repeated(results: Sequence[PartResult]) -> list[tuple[int, NDArray[np.int64]]]:
    """The parts with messages whose physical offsets earlier parts have: their numbers, and those offsets."""
    offsets = np.concatenate([result.offsets for result in results] or [np.zeros(0, np.int64)])
    part_of = np.repeat(np.arange(len(results)), [len(result.offsets) for result in results])
    order = np.argsort(offsets, kind="stable")
    again = order[1:][offsets[order[1:]] == offsets[order[:-1]]]
    return [(part, offsets[again[part_of[again] == part]]) for part in np.unique(part_of[again]).tolist()]
