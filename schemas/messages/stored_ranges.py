"""Cuts stored messages into tasks: ranges of the log of a few files each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from filtering.delivery.pull_window import BEGINNING, FOREVER
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.data_files import StoredFile
from schemas.delta.table import Table
from schemas.delta.table_rows import files_that_may_hold, within
from schemas.messages.stored_messages import WHOLE_LOG, PhysicalRange

FILES_IN_A_TASK = 8
MESSAGES_IN_A_TASK = 4 << 20
"""Unless one file has more. A task keeps their filter bit maps in memory, up to some hundred bytes each."""

FilesOf = Callable[[Table], Sequence[StoredFile]]


@dataclass(frozen=True)
class StoredRange:
    """Messages with physical offsets in ``offsets``, in files of commitlog.

    ``entry_files`` are the files of consumequeue with their entries. ``size``: bytes of ``message_files``.
    """

    offsets: PhysicalRange
    message_files: tuple[str, ...]
    entry_files: tuple[str, ...]
    size: int


def stored_ranges(
    files_of: FilesOf,
    offsets: PhysicalRange = WHOLE_LOG,
    first_run: str | None = None,
    period: tuple[int, int] = (BEGINNING, FOREVER),
) -> list[StoredRange]:
    """The stored messages with physical offsets in a range, in tasks.

    ``first_run``: leave out files without an entry of this or a later run. ``period``: leave out files without a
    message stored in it (ms, the second exclusive).
    """
    entry_files = files_of(CONSUMEQUEUE)
    if first_run is not None:
        entry_files = files_that_may_hold(entry_files, [within("run", first_run)])
        first = min((file.least["commitlog_offset"] for file in entry_files), default=FOREVER)
        offsets = max(offsets[0], first), offsets[1]
    ranges = []
    for files in _parts(_files(files_of(COMMITLOG), offsets, period)):
        low = max(offsets[0], files[0].least["commitlog_offset"])
        high = min(offsets[1], max(file.greatest["commitlog_offset"] for file in files) + 1)
        of_entries = _files(entry_files, (low, high), period)
        size = sum(file.size for file in files)
        ranges.append(StoredRange((low, high), _paths(files), _paths(of_entries), size))
    return ranges


def _files(files: Sequence[StoredFile], offsets: PhysicalRange, period: tuple[int, int]) -> list[StoredFile]:
    """The files that may hold the messages, in the order of the log."""
    chosen = files_that_may_hold(files, [within("commitlog_offset", *offsets), within("store_timestamp", *period)])
    return sorted(chosen, key=lambda file: (file.least["commitlog_offset"], file.greatest["commitlog_offset"]))


def _parts(files: Iterable[StoredFile]) -> Iterator[list[StoredFile]]:
    """The files of each task."""
    part: list[StoredFile] = []
    for file in files:
        messages = sum(other.rows for other in [*part, file])
        if part and (len(part) == FILES_IN_A_TASK or messages > MESSAGES_IN_A_TASK):
            yield part
            part = []
        part.append(file)
    if part:
        yield part


def _paths(files: Iterable[StoredFile]) -> tuple[str, ...]:
    return tuple(file.path for file in files)
