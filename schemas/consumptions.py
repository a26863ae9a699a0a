"""What clients wrote of their own consumption: the traces in the broker's log."""

from __future__ import annotations

import socket

import pyarrow as pa

from schemas.delta.table import Table, column

_IPV4_OCTETS = 10
"""Of a client_process with an IPv4 address: that, the process id and the hash of the class loader."""

CONSUMPTIONS = Table(
    "consumptions",
    "What clients with message tracing wrote of their own consumption: one row each time that one was handed a "
    "message. Key: broker_name, trace_offset, trace_number.",
    [
        column("broker_name", pa.string(), nullable=False),
        column("consumer_group", pa.string(), "full name; null: the client wrote only the end of the call, without it"),
        column("topic", pa.string(), "topic of the message; null: it is not in commitlog"),
        column("queue_id", pa.int32()),
        column("queue_offset", pa.int64()),
        column("commitlog_offset", pa.int64()),
        column("message_id", pa.string(), "UNIQ_KEY of the message, or its msg_id if it has none", nullable=False),
        column(
            "records",
            pa.int32(),
            "messages of the log that message_id and retry_times may mean; if more than one, the row has one of them",
            nullable=False,
        ),
        column("retry_times", pa.int32(), "how often the message came again; in order also in the client's memory"),
        column("consumed_at", pa.int64(), "when the listener was called, ms since the epoch, client clock"),
        column("returned_at", pa.int64(), "when it returned; null: not known, or it did not yet; clients before 4.8.0"),
        column("cost", pa.int32(), "ms of the call, divided by the number of its messages"),
        column("success", pa.bool_(), "whether the call, not the message, succeeded; null: it did not return yet"),
        column("code", pa.int32(), "0 success, 1 time-out, 2 exception, 3 null returned, 4 asked for redelivery"),
        column("client_process", pa.string(), "hex of the client's address, process id mod 65536 and class loader"),
        column("request_id", pa.string(), "of the call: its messages share it", nullable=False),
        column("trace_topic", pa.string(), "topic of the trace", nullable=False),
        column("trace_offset", pa.int64(), "physical offset of the trace in the commitlog, bytes", nullable=False),
        column("trace_number", pa.int32(), "number of the line in the trace, from 0", nullable=False),
        column("traced_at", pa.int64(), "when the trace was stored, ms since the epoch", nullable=False),
        column("run", pa.string(), "the run that read the trace, or the end of the call", nullable=False),
    ],
    statistics_on=("topic", "queue_offset", "commitlog_offset", "consumed_at", "trace_offset", "run"),
    dictionary_encoded=(
        "consumer_group", "topic", "queue_id", "records", "retry_times", "cost", "success", "code", "client_process",
        "trace_topic", "run",
    ),
    delta_encoded=(
        "queue_offset", "commitlog_offset", "consumed_at", "returned_at", "trace_offset", "trace_number", "traced_at",
    ),
)  # fmt: skip


def client_name(process: str | None) -> str:
    """``10.0.0.7 (process 1)``: the client of a ``client_process``. Source: MessageClientIDSetter."""
    if process is None:
        return "a client"
    octets = bytes.fromhex(process)
    family = socket.AF_INET6 if len(octets) > _IPV4_OCTETS else socket.AF_INET
    address, number = octets[:-6], int.from_bytes(octets[-6:-4], "big")
    return f"{socket.inet_ntop(family, address)} (process {number})"
