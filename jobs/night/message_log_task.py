"""Reads a part of a message log on a worker: from lines or rows to rows of commitlog and quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobs.night.rejected import RejectedLine
from schemas.arrow_batches import ROWS
from schemas.commitlog import COMMITLOG
from schemas.delta.data_files import DataFile, DataFileWriter
from schemas.messages.bodies import Bodies
from schemas.messages.mapped_rows import MappedRows
from schemas.messages.message_checks import LogRow, NotAMessage, checked
from schemas.messages.message_log import LogPart
from schemas.quarantine import QUARANTINE
from schemas.storage import Storage

Offsets = NDArray[np.int64]


class PartResult(NamedTuple):
    """The files that a part made, by table, and the physical offsets of all of its messages.

    ``still_rejected``: the rejected lines that were in quarantine before.
    """

    files: dict[str, list[DataFile]]
    offsets: Offsets
    still_rejected: list[RejectedLine]


def read_part(
    task: tuple[LogPart, Offsets],
    storages: Mapping[str, Storage],
    run: str,
    bodies: Bodies,
    known: Offsets,
    quarantined: Set[RejectedLine],
) -> PartResult:
    """Writes the messages of a part that commitlog does not have, and the lines that quarantine does not have.

    ``task``: the part, and the physical offsets of messages in earlier parts. ``known``: those in commitlog, sorted.
    """
    part, taken = task[0], set(task[1].tolist())
    messages: list[dict[str, Any]] = []
    rejected: list[RejectedLine] = []
    for row in part.rows():
        try:
            message = _message(row, taken)
        except NotAMessage as reason:
            rejected.append(RejectedLine(part.file.name, row.number, str(reason), row.bytes()))
        else:
            taken.add(message["commitlog_offset"])
            messages.append(message)
    offsets = np.array([message["commitlog_offset"] for message in messages], np.int64)
    order = np.argsort(offsets)
    new = [messages[row] for row in order[~_are_in(known, offsets[order])].tolist()]
    log, rows = DataFileWriter(COMMITLOG, storages[COMMITLOG.name]), MappedRows(run, bodies)
    for start in range(0, len(new), ROWS):
        log.write([rows.rows(new[start : start + ROWS])])
    lines = DataFileWriter(QUARANTINE, storages[QUARANTINE.name])
    added = [{**line._asdict(), "run": run} for line in rejected if line not in quarantined]
    lines.write([QUARANTINE.rows_batch(added)])
    files = {COMMITLOG.name: log.close(), QUARANTINE.name: lines.close()}
    return PartResult(files, offsets, [line for line in rejected if line in quarantined])


def _message(row: LogRow, taken: Set[int]) -> dict[str, Any]:
    """Raises NotAMessage."""
    if isinstance(row.values, NotAMessage):
        raise row.values
    message = checked(row.values)
    if message["commitlog_offset"] in taken:
        raise NotAMessage("another message has this commitlog_offset")
    return message


def _are_in(known: Offsets, offsets: Offsets) -> NDArray[np.bool_]:
    """Whether each offset is among the ``known`` ones, which are sorted."""
    found: NDArray[np.bool_] = np.append(known, -1)[np.searchsorted(known, offsets)] == offsets
    return found
