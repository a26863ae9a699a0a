"""Filters messages that earlier nights stored, on a worker: to make entries, or for groups that returned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from filtering.tags_code import DELAY_PROPERTY
from jobs.night.tasks.work import TaskResult, Work
from jobs.night.tasks.writer import NightWriter
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE
from schemas.delta.warehouse import Warehouse
from schemas.messages.stored_entries import StoredEntries, read_entries
from schemas.messages.stored_messages import read_messages
from schemas.messages.stored_ranges import StoredRange
from schemas.spark_tasks import Session, run_tasks
from schemas.storage import Storage


def read_stored(part: StoredRange, commitlog: Storage, consumequeue: Storage, work: Work) -> TaskResult:
    """Filters a range of stored messages, and writes files of the tables in ``work``.

    If they include consumequeue, the messages are those without an entry, otherwise those with one.
    """
    writer = NightWriter(work)
    wanted = work.wanted
    if CONSUMEQUEUE.name in work.tables:
        names = {name for topic_names in wanted.values() for name in topic_names} | {DELAY_PROPERTY}
        entries = StoredEntries.read(consumequeue, part.entry_files, part.offsets, bit_maps=False)
        for messages in read_messages(commitlog, part.message_files, part.offsets, None, names):
            _, has_entry = entries.find(messages.commitlog_offset)
            writer.add(messages.take(np.flatnonzero(~has_entry)) if has_entry.any() else messages)
    else:
        for block in read_entries(part, commitlog, consumequeue, wanted):
            writer.filter(block)
    return writer.close()


def filter_stored(ranges: Sequence[StoredRange], warehouse: Warehouse, work: Work, session: Session) -> TaskResult:
    commitlog, consumequeue = (warehouse.log(table).storage for table in (COMMITLOG, CONSUMEQUEUE))
    read = partial(read_stored, commitlog=commitlog, consumequeue=consumequeue, work=work)
    total = TaskResult()
    for result in run_tasks(ranges, read, sum(part.size for part in ranges), session):
        total.add(result)
    return total
