"""Filters messages that earlier nights stored, on a worker: to make entries, or for groups that returned."""

from __future__ import annotations

from filtering.tags_code import DELAY_PROPERTY
from jobs.night.work import Result, Work
from jobs.night.writer import NightWriter
from schemas.messages.stored_entries import StoredRange, read_entries
from schemas.messages.stored_messages import read_messages
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
