"""Traces in the bodies of messages: how a client tells when it called its listener, and what came of it.

A client with message tracing sends messages of its own to RMQ_SYS_TRACE_TOPIC, or to any topic of its choice. A body is
lines that end with 0x02, and a line is fields between 0x01. SubBefore says that the listener is called with a message,
SubAfter that the call returned; Pub, EndTransaction and Recall are of producers, and are passed over. So a message is a
trace if its body begins with one of these words and 0x01, whatever its topic. Source: TraceDataEncoder of clients 4.4.0
to 5.5.0, which differ: SubAfter has the time and the group from 4.8.0 on, and in 4.9.7 to 5.3.0 with
AccessChannel.CLOUD no 0x02 at its end.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filtering.delivery.entries import Int64s
from filtering.frozen import frozen
from filtering.java import decode_utf8
from filtering.names import is_trace_topic, subscribed_topic
from filtering.pops.handed_out import numbered
from filtering.subscriptions.events import GroupTopic
from filtering.traces import Deliveries, Mask, Traces
from schemas.arrow_batches import codes, dictionary_column, repeated
from schemas.deliveries import RECORDED
from schemas.delta.table import StoredFile
from schemas.delta.table_rows import files_that_may_hold, group_numbers, within
from schemas.messages.commitlog_rows import Messages
from schemas.messages.stored_messages import read_messages
from schemas.rocketmq_store import record_layout
from schemas.rocketmq_store.record_layout import Bytes
from schemas.storage import Storage
from schemas.tables import CONSUMPTIONS, TRACE_SOURCE

LINE_END, FIELD_END = "\u0002", "\u0001"
CALLED, RETURNED = "SubBefore", "SubAfter"
PRODUCER_TYPES = ("Pub", "EndTransaction", "Recall")
TYPES = (CALLED, RETURNED, *PRODUCER_TYPES)

_COMPRESSED, _KIND_SHIFT, _LZ4, _ZSTD = 0x1, 8, 1, 2
"""Of sysFlag (MessageSysFlag, CompressionType). Other kinds are zlib."""
_MOST_BYTES = 16 << 20
"""No trace is larger: a client sends one before it has 128,000 characters (maxMsgSize)."""

_PROBED = 4
"""Compressed messages without tags of each other topic that are looked into, chunk by chunk."""
_BEGINNINGS = tuple((name + FIELD_END).encode() for name in TYPES)
_HEAD = max(map(len, _BEGINNINGS))
_SECOND_OF = {ord(name[0]): ord(name[1]) for name in TYPES}
_UNENDED = f"(?s)^(?P<line>{RETURNED}(?:\\x01[^\\x01]*){{6}})\\x01(?P<rest>.*)$"
"""A SubAfter with something after its contextCode: its time, or the next line."""
_REQUEST_ID = "^(?:[0-9A-F]{32}|[0-9A-F]{56})$"
"""MessageClientIDSetter: address (8 or 32 digits), process id (4), class loader (8), time (8), counter (4)."""
_DIGITS_OF_CALL = 12


@frozen(eq=False)
class _Traces:
    """n messages with traces: their ``rows`` in a chunk, and their bodies, not compressed."""

    rows: Int64s
    bodies: pa.BinaryArray


@frozen(eq=False)
class _Lines:
    """n lines of traces, in order: line i is number ``numbers[i]`` of body ``parents[i]``.

    Its fields are those of ``values`` from ``offsets[i]`` to ``offsets[i + 1]`` (exclusive).
    """

    texts: pa.StringArray
    parents: Int64s
    numbers: Int64s
    offsets: Int64s
    values: pa.StringArray

    def field(self, number: int) -> pa.StringArray:
        """A field of each line; null if it has fewer."""
        at = self.offsets[:-1] + number
        return self.values.take(pa.array(at, mask=at >= self.offsets[1:]))


@dataclass
class TraceReader:
    """Reads the traces of a log, chunk by chunk."""

    run: str
    _topics: set[str] = field(default_factory=set)
    """The topics in which traces were found."""

    def read(
        self, log: Bytes, at: Int64s, messages: Messages, is_damaged: NDArray[np.bool_]
    ) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
        """The rows of CONSUMPTIONS, still without the messages that they mean, and rows of quarantine without a run.

        A SubAfter is a row of its own, without ``consumed_at``. ``at``: where each body begins in ``log``.
        """
        bad: list[dict[str, Any]] = []
        traces = self._plain(log, at, messages, is_damaged)
        compressed = self._compressed(log, at, messages, is_damaged, bad)
        if len(compressed.rows):
            rows = np.concatenate([traces.rows, compressed.rows])
            order = np.argsort(rows)
            bodies = pa.concat_arrays([traces.bodies, compressed.bodies]).take(pa.array(order))
            traces = _Traces(rows[order], bodies)
        if not len(traces.rows):
            return CONSUMPTIONS.batch({}, 0), bad
        lines = _lines(traces.bodies)
        columns, is_good = _columns(lines)
        is_passed = pc.is_in(lines.field(0), pa.array(PRODUCER_TYPES))
        bad += _bad_lines(lines, pc.invert(pc.or_(is_good, is_passed)), traces, messages)
        rows = traces.rows[lines.parents]
        columns |= {
            "trace_offset": pa.array(messages.commitlog_offset[rows]),
            "trace_number": pa.array(lines.numbers.astype(np.int32)),
            "trace_topic": dictionary_column([shape.topic for shape in messages.shapes], messages.shape_of[rows]),
            "traced_at": pa.array(messages.store_timestamp[rows]),
            "records": pa.array(np.zeros(len(rows), np.int32)),
            "run": repeated(self.run, len(rows)),
        }
        return CONSUMPTIONS.batch(columns, len(rows)).filter(is_good), bad

    def _plain(self, log: Bytes, at: Int64s, messages: Messages, is_damaged: NDArray[np.bool_]) -> _Traces:
        """The traces that are not compressed, and what else is in RocketMQ's own topics of traces.

        Two bytes tell most other messages.
        """
        second_of = np.zeros(256, np.uint8)
        second_of[list(_SECOND_OF)] = list(_SECOND_OF.values())
        is_own = np.array([is_trace_topic(shape.topic) for shape in messages.shapes], bool)[messages.shape_of]
        is_plain = (messages.sys_flag & _COMPRESSED == 0) & ~is_damaged
        rows = np.flatnonzero(is_plain & ~is_own & (messages.body_length >= _HEAD))
        second = second_of[log[at[rows]]]
        rows = rows[(second != 0) & (log[at[rows] + 1] == second)]
        heads = record_layout.binary_array(*record_layout.spans(log, at[rows], np.full(len(rows), _HEAD, np.int64)))
        rows = rows[_begin_as_traces(heads).to_numpy(zero_copy_only=False)]
        self._topics.update(messages.shapes[shape].topic for shape in np.unique(messages.shape_of[rows]).tolist())
        rows = np.union1d(rows, np.flatnonzero(is_plain & is_own & (messages.body_length > 0)))
        lengths = messages.body_length[rows].astype(np.int64)
        return _Traces(rows, record_layout.binary_array(*record_layout.spans(log, at[rows], lengths)))

    def _compressed(
        self,
        log: Bytes,
        at: Int64s,
        messages: Messages,
        is_damaged: NDArray[np.bool_],
        bad: list[dict[str, Any]],
    ) -> _Traces:
        """The compressed traces. They have KEYS and no TAGS. Of other topics, the first such are looked into."""
        may_be = pc.and_(messages.named["TAGS"].is_null(), messages.named["KEYS"].is_valid())
        is_compressed = (messages.sys_flag & _COMPRESSED != 0) & ~is_damaged
        candidates = np.flatnonzero(is_compressed & may_be.to_numpy(zero_copy_only=False))
        shape_of = messages.shape_of[candidates]
        rows: list[int] = []
        bodies: list[bytes] = []
        for shape in np.unique(shape_of).tolist():
            topic = messages.shapes[shape].topic
            is_known = is_trace_topic(topic) or topic in self._topics
            for number, row in enumerate(candidates[shape_of == shape].tolist()):
                if not is_known and number == _PROBED:
                    break
                stored = log[at[row] : at[row] + messages.body_length[row]].tobytes()
                body = _decompressed(stored, int(messages.sys_flag[row]))
                if body is not None and (is_trace_topic(topic) or body.startswith(_BEGINNINGS)):
                    is_known = True
                    rows.append(row)
                    bodies.append(body)
                elif is_known and body is None:
                    bad.append(_quarantined(messages, row, "the body cannot be decompressed", stored))
            if is_known:
                self._topics.add(topic)
        return _Traces(np.array(rows, np.int64), pa.array(bodies, pa.binary()))


def _columns(lines: _Lines) -> tuple[dict[str, pa.Array], pa.BooleanArray]:
    """What the lines say of consumptions, and which of them are such lines and complete."""
    is_call, is_return = (pc.equal(lines.field(0), name) for name in (CALLED, RETURNED))
    group, success, code = lines.field(3), pc.utf8_lower(lines.field(4)), lines.field(6)
    columns = {
        "consumer_group": _without_empty(pc.if_else(is_call, group, lines.field(8))),
        "message_id": _without_empty(pc.if_else(is_call, lines.field(5), lines.field(2))),
        "request_id": _without_empty(pc.if_else(is_call, lines.field(4), lines.field(1))),
        "retry_times": _numbers(code, is_call, pa.int32()),
        "consumed_at": _numbers(lines.field(1), is_call, pa.int64()),
        "returned_at": _numbers(lines.field(7), is_return, pa.int64()),
        "cost": _numbers(group, is_return, pa.int32()),
        "success": pc.if_else(is_return, pc.equal(success, "true"), pa.scalar(None, pa.bool_())),
        "code": _numbers(code, is_return, pa.int32()),
    }
    has = {name: pc.is_valid(column) for name, column in columns.items()}
    is_called = _all(is_call, *(has[name] for name in ("consumer_group", "retry_times", "consumed_at")))
    has_no_code = pc.equal(pc.binary_length(code), 0).fill_null(True)
    is_bool = pc.is_in(success, pa.array(["true", "false"]))
    is_returned = _all(is_return, has["cost"], is_bool, pc.or_(has["code"], has_no_code))
    request = columns["request_id"]
    process = pc.utf8_slice_codeunits(request, 0, -_DIGITS_OF_CALL)
    is_process = pc.match_substring_regex(request, _REQUEST_ID)
    columns["client_process"] = pc.if_else(is_process, process, pa.scalar(None, pa.string()))
    return columns, _all(has["message_id"], has["request_id"], pc.or_(is_called, is_returned)).fill_null(False)


def _bad_lines(lines: _Lines, is_bad: pa.BooleanArray, traces: _Traces, messages: Messages) -> list[dict[str, Any]]:
    """A row of quarantine for each trace with bad lines, with all of these."""
    texts: dict[int, list[str]] = {}
    for number in np.flatnonzero(is_bad.to_numpy(zero_copy_only=False)).tolist():
        texts.setdefault(int(lines.parents[number]), []).append(lines.texts[number].as_py())
    bad = []
    for parent, trace_lines in texts.items():
        name = trace_lines[0].split(FIELD_END)[0]
        reason = f"a {name} lacks a field, or has a wrong one" if name in TYPES else "a line of no known type"
        octets = "".join(text + LINE_END for text in trace_lines).encode()
        bad.append(_quarantined(messages, int(traces.rows[parent]), reason, octets))
    return bad


def _quarantined(messages: Messages, row: int, reason: str, octets: bytes) -> dict[str, Any]:
    topic = messages.shapes[messages.shape_of[row]].topic
    offset = int(messages.commitlog_offset[row])
    return {"source_file": topic + TRACE_SOURCE, "offset": offset, "reason": reason, "bytes": octets}


def _lines(bodies: pa.BinaryArray) -> _Lines:
    split = pc.split_pattern(_texts(bodies), LINE_END)
    lines, parents = split.flatten(), pc.list_parent_indices(split).to_numpy().astype(np.int64)
    places = np.arange(len(lines)) << 16
    parts: list[tuple[pa.StringArray, Int64s, Int64s]] = []
    while len(lines):
        cut = pc.extract_regex(lines, _UNENDED)
        line, rest = pc.struct_field(cut, "line"), pc.struct_field(cut, "rest")
        is_cut = _begin_as_traces(rest.cast(pa.binary())).fill_null(False)
        parts.append((pc.if_else(is_cut, line, lines), parents, places))
        rows = np.flatnonzero(is_cut.to_numpy(zero_copy_only=False))
        lines, parents, places = rest.take(pa.array(rows)), parents[rows], places[rows] + 1
    texts = pa.concat_arrays([part[0] for part in parts])
    all_parents, all_places = (np.concatenate([part[number] for part in parts]) for number in (1, 2))
    order = np.argsort(all_places, kind="stable")
    order = order[pc.greater(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)[order]]
    texts, all_parents = texts.take(pa.array(order)), all_parents[order]
    fields = pc.split_pattern(texts, FIELD_END)
    numbers = np.arange(len(texts)) - np.searchsorted(all_parents, all_parents)
    return _Lines(texts, all_parents, numbers, fields.offsets.to_numpy().astype(np.int64), fields.values)


def _texts(bodies: pa.BinaryArray) -> pa.StringArray:
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([decode_utf8(body) for body in bodies.to_pylist()], pa.string())


def _decompressed(body: bytes, sys_flag: int) -> bytes | None:
    """At most _MOST_BYTES of a compressed body; None if it cannot be decompressed."""
    codec = {_LZ4: "lz4", _ZSTD: "zstd"}.get(sys_flag >> _KIND_SHIFT & 7)
    try:
        if codec is None:
            return zlib.decompressobj().decompress(body, _MOST_BYTES)
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            return bytes(stream.read(_MOST_BYTES))
    except (zlib.error, OSError):
        return None


def _begin_as_traces(texts: pa.BinaryArray) -> pa.BooleanArray:
    return reduce(pc.or_, (pc.starts_with(texts, beginning) for beginning in _BEGINNINGS))


def _numbers(texts: pa.StringArray, where: pa.BooleanArray, kind: pa.DataType) -> pa.Array:
    """The numbers in some texts; null elsewhere, and where a text is none, or has too many digits."""
    is_number = pc.match_substring_regex(texts, f"^-?[0-9]{{1,{9 if kind == pa.int32() else 18}}}$")
    return pc.if_else(pc.and_(where, is_number).fill_null(False), texts, pa.scalar(None, pa.string())).cast(kind)


def _without_empty(texts: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _all(*masks: pa.BooleanArray) -> pa.BooleanArray:
    return reduce(pc.and_, masks)


# Deliveries and traces of clients side by side, for :mod:`filtering.traces`.


TRACE_COLUMNS = ("consumer_group", "topic", "queue_id", "queue_offset", "commitlog_offset", "records", "retry_times",
                 "consumed_at", "client_process", "message_id", "trace_offset", "run")  # fmt: skip
"""The columns of consumptions that are compared with deliveries."""
_PROPERTIES = _REGION, _TRACE_ON, _ID = "MSG_REGION", "TRACE_ON", "UNIQ_KEY"


def with_message(rows: pa.Table) -> pa.Table:
    """The rows of consumptions that say of which group and message they are."""
    return rows.filter(pc.and_(pc.is_valid(rows["commitlog_offset"]), pc.is_valid(rows["consumer_group"])))


def keys(*parts: pa.Table) -> list[Int64s]:
    """A number for the group and the physical offset of each row, the same in all parts."""
    offsets = np.concatenate([part["commitlog_offset"].to_numpy() for part in parts])
    distinct, numbers = np.unique(offsets, return_inverse=True)
    key_numbers = codes(*(part["consumer_group"] for part in parts)) * len(distinct) + numbers.reshape(-1)
    return np.split(key_numbers, np.cumsum([len(part) for part in parts])[:-1])


def compared(rows: pa.Table, deliveries: pa.Table, as_of: int) -> tuple[Traces, Deliveries]:
    """Rows of consumptions and of PAIRS, as numbers. ``as_of`` (ms): instead of the time of a call without one."""
    traced_keys, delivery_keys = keys(rows, deliveries)
    names = [codes(deliveries[name]) for name in ("consumer_group", "topic")]
    queue = numbered([*names, deliveries["queue_id"].to_numpy()])
    traces = Traces(traced_keys, codes(rows["client_process"]), rows["consumed_at"].fill_null(as_of).to_numpy())
    offsets, available_at = (deliveries[name].to_numpy() for name in ("queue_offset", "available_at"))
    return traces, Deliveries(delivery_keys, queue, offsets, available_at)


def is_of(rows: pa.Table, subscribed: Collection[GroupTopic]) -> Mask:
    """Which rows are of some groups and the topics that these subscribe to, or of their retry topics."""
    names, number = group_numbers(rows, ["consumer_group", "topic"])
    mask: Mask = np.array([(group, subscribed_topic(group, topic)) in subscribed for group, topic in names], bool)[
        number
    ]
    return mask


def is_for_any_client(deliveries: pa.Table, subscribed: Collection[GroupTopic]) -> Mask:
    """Which rows of PAIRS are of pops or broadcasts, which the traces of one client do not deny.

    ``subscribed``: the groups and topics that pop without a record, or broadcast.
    """
    mask: Mask = is_of(deliveries, subscribed) | np.array(pc.equal(deliveries["source"], RECORDED), bool)
    return mask


def traceable(
    storage: Storage, files: Sequence[StoredFile], deliveries: pa.Table, consumed: pa.Table
) -> tuple[Mask, Mask]:
    """Of some rows of PAIRS: those of messages that a client traces, and those that it passes over in a call.

    ``files``: those of commitlog. ``consumed``: rows of consumptions. If a trace of the group may be of one of several
    messages, which have the same id, all of them count as passed over.
    """
    several = consumed.filter(pc.greater(consumed["records"], 1))
    shared = _group_and_id(several["consumer_group"], several["message_id"])
    groups, offsets = deliveries["consumer_group"], deliveries["commitlog_offset"].to_numpy()
    limits = int(offsets.min()), int(offsets.max()) + 1
    paths = [file.path for file in files_that_may_hold(files, [within("commitlog_offset", *limits)])]
    is_traced, is_passed_over = np.zeros(len(offsets), bool), np.zeros(len(offsets), bool)
    for messages in read_messages(storage, paths, limits, None, _PROPERTIES):
        rows = np.flatnonzero(np.isin(messages.commitlog_offset, offsets))
        for shape in np.unique(messages.shape_of[rows]).tolist():
            shape_rows = rows[messages.shape_of[rows] == shape]
            values = messages.properties(_PROPERTIES, shape_rows)
            here = np.isin(offsets, messages.commitlog_offset[shape_rows])
            place = np.searchsorted(messages.commitlog_offset[shape_rows], offsets[here])
            is_off, has_region = np.zeros((2, len(shape_rows)), bool)
            if _TRACE_ON in values:
                is_off = np.array(pc.equal(values[_TRACE_ON].text_of_each(), "false").fill_null(False))
            if _REGION in values:
                has_region = np.array(values[_REGION].text_of_each().is_valid())
            is_traced[here], is_passed_over[here] = (has_region & ~is_off)[place], is_off[place]
            if _ID in values and len(shared):
                ids = values[_ID].text_of_each().take(pa.array(place))
                is_shared = np.zeros(len(offsets), bool)
                is_shared[here] = pc.is_in(_group_and_id(groups.filter(pa.array(here)), ids), value_set=shared)
                is_traced &= ~is_shared
                is_passed_over |= is_shared
    return is_traced, is_passed_over


def _group_and_id(groups: pa.ChunkedArray, ids: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Each group and message id as one text."""
    return pc.binary_join_element_wise(*map(_combined, (groups, ids)), " ")


def _combined(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
