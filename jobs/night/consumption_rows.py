"""The rows of consumptions: joins what traces say of a call, and adds the messages that they mean.

Tasks leave a row for each call of a listener with a message, and one for each return. A return may be in another trace,
and then in another night than its call: the row of the call is then stored again, as one of the later night. Which
message a trace means is in :mod:`filtering.traces`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filtering.pops.handed_out import NONE, matching
from filtering.subscriptions.events import GroupTopic
from filtering.traces import LONGEST_CALL, Mask, full_names, ids_with_offsets, meant, of_first_traces
from jobs.night.commit import Changes
from schemas.arrow_batches import codes, gathered, replaced, split
from schemas.commitlog import COMMITLOG
from schemas.delta.table import ROWS_OF_A_GROUP, DataFile
from schemas.delta.table_rows import Where, files_that_may_hold, one_of, read_rows, row_groups, within
from schemas.tables import CONSUMPTIONS

_RETURN_COLUMNS = ("returned_at", "cost", "success", "code")
_PLACE = ("topic", "queue_id", "queue_offset", "commitlog_offset")
_NAMES = (*_PLACE, "uniq_key", "reconsume_times")
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1 << 20, 1 << 28


def add_consumptions(
    files: Sequence[DataFile], changes: Changes, subscribed: Collection[GroupTopic], log_start: int
) -> None:
    """Adds the rows of tonight, and deletes the files in which tasks left them.

    ``subscribed``: groups with the topics to which they ever subscribed. ``log_start``: physical offset before which no
    consumed message can be.
    """
    if not files:
        return
    storage = changes.warehouse.log(CONSUMPTIONS).storage
    rows = _once(read_rows(CONSUMPTIONS, storage, [file.path for file in files]))
    is_call = pc.is_valid(rows["consumed_at"])
    calls, returns = rows.filter(is_call), rows.filter(pc.invert(is_call))
    calls, rest = _joined(calls, returns)
    earlier = _earlier_calls(rest, changes)
    if len(earlier):
        earlier, rest = _joined(earlier, rest)
    consumed = _with_messages(pa.concat_tables([calls, rest]), changes, subscribed, log_start)
    joined = pa.concat_tables([earlier, consumed]).combine_chunks()
    changes.add_rows(CONSUMPTIONS, [batch for part in split(joined.to_batches(), ROWS_OF_A_GROUP) for batch in part])
    for file in files:
        storage.file_system.delete_file(file.path)


def _once(rows: pa.Table) -> pa.Table:
    """The rows in the order of the log, without those of traces that a client sent again."""
    rows = rows.take(pc.sort_indices(rows, sort_keys=[("trace_offset", "ascending"), ("trace_number", "ascending")]))
    is_call = pc.is_valid(rows["consumed_at"]).combine_chunks().to_numpy(zero_copy_only=False)
    is_first = of_first_traces(codes(rows["request_id"]), is_call, rows["trace_offset"].to_numpy())
    return rows if is_first.all() else rows.filter(pa.array(is_first))


def _joined(calls: pa.Table, returns: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The calls with what their returns say, and the returns without a call. A call may have an id twice."""
    keys = [pc.binary_join_element_wise(rows["request_id"], rows["message_id"], " ") for rows in (calls, returns)]
    call_keys, return_keys = np.split(codes(*keys), [len(calls)])
    call_at = matching([return_keys], [call_keys])
    taken = pa.array(call_at, mask=call_at == NONE)
    is_left = np.ones(len(returns), bool)
    is_left[call_at[call_at != NONE]] = False
    ended = replaced(calls, **{name: returns[name].take(taken) for name in _RETURN_COLUMNS})
    return ended, returns.filter(pa.array(is_left))


def _earlier_calls(returns: pa.Table, changes: Changes) -> pa.Table:
    """The calls of earlier nights that some returns end. They are removed, and are of this run now."""
    if not len(returns):
        return returns
    since = [within("consumed_at", pc.min(returns["traced_at"]).as_py() - LONGEST_CALL)]
    names = ["request_id", "success", "trace_offset"]
    rows = changes.rows(CONSUMPTIONS, names, since)
    is_open = pc.and_(
        pc.is_null(rows["success"]), pc.is_in(rows["request_id"], value_set=pc.unique(returns["request_id"]))
    )
    traces = pc.unique(rows.filter(is_open)["trace_offset"]).to_pylist()
    if not traces:
        return returns.slice(0, 0)
    where = [one_of("trace_offset", traces)]
    earlier = changes.rows(CONSUMPTIONS, where=where)
    changes.delete_rows(CONSUMPTIONS, where)
    return replaced(earlier, run=pa.repeat(changes.run, len(earlier)))


def _with_messages(rows: pa.Table, changes: Changes, subscribed: Collection[GroupTopic], log_start: int) -> pa.Table:
    """The rows with the full names of their groups, and with the messages that they mean."""
    groups = rows["consumer_group"].combine_chunks().dictionary_encode()
    names = full_names(groups.dictionary.to_pylist(), {group for group, _ in subscribed})
    groups = pa.DictionaryArray.from_arrays(groups.indices, pa.array(names, pa.string())).dictionary_decode()
    rows = replaced(rows, consumer_group=groups)
    tonight, in_log = [one_of("run", [changes.run])], [within("commitlog_offset", log_start)]
    with_messages, is_doubtful = _matched(rows, _messages(rows["message_id"], changes, tonight), subscribed)
    if is_doubtful.any():
        doubtful = with_messages.filter(pa.array(is_doubtful))
        matched, _ = _matched(doubtful, _messages(doubtful["message_id"], changes, in_log), subscribed)
        with_messages = pa.concat_tables([with_messages.filter(pa.array(~is_doubtful)), matched])
    return with_messages


def _messages(ids: pa.ChunkedArray, changes: Changes, where: Where) -> pa.Table:
    """The messages with some ids: _NAMES of commitlog, and ``id``: UNIQ_KEY, or the id that ends with their offset."""
    wanted = pc.unique(ids)
    offset_ids, offsets = ids_with_offsets(wanted)
    parts = [pa.schema([*(COMMITLOG.schema.field(name) for name in _NAMES), ("id", pa.string())]).empty_table()]
    for rows in _stored(changes, where):
        by_key = rows.filter(pc.is_in(rows["uniq_key"], value_set=wanted))
        parts.append(by_key.append_column("id", by_key["uniq_key"]))
        without = rows.filter(pc.is_null(rows["uniq_key"]))
        at = pc.index_in(without["commitlog_offset"], value_set=offsets)
        parts.append(without.append_column("id", offset_ids.take(at.combine_chunks())).filter(pc.is_valid(at)))
    schema = parts[0].schema
    return pa.concat_tables([part.cast(schema) for part in parts])


def _stored(changes: Changes, where: Where) -> Iterator[pa.Table]:
    """Messages in commitlog, as _NAMES: many row groups at once, since each look-up hashes all ids."""
    storage = changes.warehouse.log(COMMITLOG).storage
    files = files_that_may_hold(changes.files(COMMITLOG), where)
    schema = pa.schema([COMMITLOG.file_schema.field(name) for name in _NAMES])
    groups = (group for file in files for group in row_groups(COMMITLOG, storage, file.path, _NAMES, where))
    batches = (batch for group in groups for batch in group.cast(schema).to_batches())
    for part in gathered(batches, _ROWS_AT_ONCE, _BYTES_AT_ONCE):
        yield pa.Table.from_batches(part, schema)


def _matched(rows: pa.Table, messages: pa.Table, subscribed: Collection[GroupTopic]) -> tuple[pa.Table, Mask]:
    """The rows with the messages that they mean, and for which of them another one than ``messages`` may fit better."""
    row_ids, message_ids = np.split(codes(rows["message_id"], messages["id"]), [len(rows)])
    message, records, is_doubtful = meant(rows, row_ids, messages, message_ids, subscribed)
    taken = pa.array(message, mask=message == NONE)
    places = {name: messages[name].take(taken) for name in _PLACE}
    return replaced(rows, **places, records=pa.array(records.astype(np.int32))), is_doubtful
