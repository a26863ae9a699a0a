"""Filters messages that earlier nights stored, on a worker: to make entries, or for groups that returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from filtering.tags_code import DELAY_PROPERTY
from jobs.night.work import Result, Work
from jobs.night.writer import NightWriter
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.delta_log import StoredFile
from schemas.delta.table import Table
from schemas.delta.warehouse import Warehouse
from schemas.messages.stored_entries import StoredRange, read_entries
from schemas.messages.stored_messages import read_messages
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage


def read_stored(part: StoredRange, commitlog: Storage, consumequeue: Storage, work: Work) -> Result:
    """Filters a range of stored messages, and writes files of the tables in ``work``."""
    writer = NightWriter(work)
    wanted = work.wanted()
    if part.entry_files is None:
        names = {name for topic_names in wanted.values() for name in topic_names} | {DELAY_PROPERTY}
        for messages in read_messages(commitlog, part.message_files, part.offsets, None, names):
            writer.add(messages)
    else:
        for entries in read_entries(part, commitlog, consumequeue, wanted):
            writer.filter(entries)
    return writer.close()


def filter_stored(
    ranges: Sequence[StoredRange],
    files: Callable[[Table], Sequence[StoredFile]],
    warehouse: Warehouse,
    work: Work,
    session: Session,
) -> Result:
    """Filters ranges of stored messages, a task each. ``files`` returns the broker's files of a table."""
    commitlog, consumequeue = (warehouse.log(table).storage for table in (COMMITLOG, CONSUMEQUEUE))
    read = partial(read_stored, commitlog=commitlog, consumequeue=consumequeue, work=work)
    sizes = {file.path: file.size for file in files(COMMITLOG)}
    size = sum(sizes[path] for part in ranges for path in part.message_files)
    total = Result()
    for result in run_tasks(ranges, read, size, session):
        total.add(result)
    return total
