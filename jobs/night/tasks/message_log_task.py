"""Reads a part of a message log on a worker: from lines or rows to rows of commitlog and quarantine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jobs.night.rows.rejected import RejectedLine
from schemas.arrow_batches import split
from schemas.commitlog import COMMITLOG
from schemas.delta.data_files import ROWS_OF_A_GROUP, DataFile, DataFileWriter
from schemas.delta.table_rows import sorted_by
from schemas.messages.bodies import Bodies
from schemas.messages.mapped_rows import MappedRows
from schemas.messages.message_checks import LogRow, NotAMessage, checked
from schemas.messages.message_log import LogPart
from schemas.quarantine import QUARANTINE
from schemas.storage import Storage

Offsets = NDArray[np.int64]
MESSAGES_AT_ONCE = 1 << 14
"""Until they are in columns, messages take several times as much memory as their lines."""


class PartResult(NamedTuple):
    """The files that a part made, by table, and the physical offsets of all of its messages.

    ``still_rejected``: the rejected lines that were in quarantine before. ``damaged_bodies``: the number of new
    messages whose body does not match its checksum.
    """

    files: dict[str, list[DataFile]]
    offsets: Offsets
    still_rejected: list[RejectedLine]
    damaged_bodies: int


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
    part, repeated = task
    rejected: list[RejectedLine] = []
    messages = _messages(part, set(repeated.tolist()), rejected)
    rows = MappedRows(run, bodies)
    offsets, new = [repeated[:0]], [rows.rows([])]
    while some := list(islice(messages, MESSAGES_AT_ONCE)):
        offsets.append(np.array([message["commitlog_offset"] for message in some], np.int64))
        are_known = _are_in(known, offsets[-1]).tolist()
        new.append(rows.rows([message for message, is_known in zip(some, are_known, strict=True) if not is_known]))
    log, lines = (DataFileWriter(table, storages[table.name]) for table in (COMMITLOG, QUARANTINE))
    for batches in split(sorted_by(pa.Table.from_batches(new), "commitlog_offset").to_batches(), ROWS_OF_A_GROUP):
        log.write(batches)
    added = [{**line._asdict(), "run": run} for line in rejected if line not in quarantined]
    lines.write([QUARANTINE.rows_batch(added)])
    files = {COMMITLOG.name: log.close(), QUARANTINE.name: lines.close()}
    damaged = sum(batch["body_is_damaged"].true_count for batch in new)
    return PartResult(files, np.concatenate(offsets), [line for line in rejected if line in quarantined], damaged)


def _messages(part: LogPart, taken: set[int], rejected: list[RejectedLine]) -> Iterator[dict[str, Any]]:
    """The messages of a part. Adds their physical offsets to ``taken``, and other lines to ``rejected``."""
    for row in part.rows():
        try:
            message = _message(row, taken)
        except NotAMessage as reason:
            rejected.append(RejectedLine(part.file.name, row.number, str(reason), row.bytes()))
        else:
            taken.add(message["commitlog_offset"])
            yield message


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
