"""A pull: the broker's checks before it looks for messages, what it returns, and what that costs the broker.

Sources: PullMessageProcessor (and its composeResponseHeader), DefaultMessageStore.getMessage and isTheBatchFull.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from filtering.broker_config import CONSUME_QUEUE_UNIT, BrokerConfig
from filtering.frozen import frozen
from filtering.subscription_data import TAG, is_tag_type
from filtering.subscriptions.subscription_row import SubscriptionRow


class ResponseCode(Enum):
    """Why a pull is refused (org.apache.rocketmq.remoting.protocol.ResponseCode)."""

    SYSTEM_ERROR = 1
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28

    @property
    def text(self) -> str:
        """The name, with the setting that causes it if there is one."""
        return f"{self.name}: enablePropertyFilter is off" if self is ResponseCode.SYSTEM_ERROR else self.name


def refusal(row: SubscriptionRow, config: BrokerConfig) -> ResponseCode | None:
    """Why the broker would refuse the pulls of a subscription in force if its group consumed; None if it would not.

    Of subscriptions sent with the pull, the broker refuses tags that do not parse and empty expressions. It does not
    notice an SQL92 expression that does not compile, and lets every message pass. It compiles the subscription of a pop
    for this one request, and needs no switch for SQL92 (PopMessageProcessor).
    """
    if row.pops:
        return None if row.compile_error is None else ResponseCode.SUBSCRIPTION_PARSE_FAILED
    if row.sent_with_pull:
        if not row.expression and row.expression_type != TAG:  # FilterAPI.build; "" counts as tags elsewhere
            return ResponseCode.SUBSCRIPTION_PARSE_FAILED
        if row.compile_error is not None and is_tag_type(row.expression_type):
            return ResponseCode.SUBSCRIPTION_PARSE_FAILED
    elif not is_tag_type(row.expression_type):
        # When a group that left comes back, it registers again, and has filter data again if the expression compiles.
        comes_back = not row.registered and row.compile_error is None
        filter_version = row.sub_version if comes_back else row.filter_version
        if filter_version is None:
            return ResponseCode.FILTER_DATA_NOT_EXIST
        if filter_version < row.sub_version:
            return ResponseCode.FILTER_DATA_NOT_LATEST
    supported = is_tag_type(row.expression_type) or config.enable_property_filter
    return None if supported else ResponseCode.SYSTEM_ERROR


def refused(rows: Iterable[SubscriptionRow], config: BrokerConfig) -> Iterator[tuple[SubscriptionRow, ResponseCode]]:
    """The subscriptions whose every pull the broker refuses, or would refuse if the group came back, and why."""
    for row in rows:
        code = refusal(row, config)
        if code is not None and (row.is_consuming or code is ResponseCode.SYSTEM_ERROR):
            yield row, code


def is_pulling(row: SubscriptionRow, config: BrokerConfig) -> bool:
    """Whether the group is online and the broker accepts its pulls. A client whose pulls are refused tries again."""
    return row.is_consuming and refusal(row, config) is None


# The pulls of a consumer that reads a queue: their results, and their cost to the broker.


MAX_PULL_BYTES = 128 << 20
DEFAULT_BATCH = 32
"""pullBatchSize of RocketMQ's client."""


class GetMessageStatus(Enum):
    """The values of org.apache.rocketmq.store.GetMessageStatus that occur in a store without damage."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"


@frozen
class Queue:
    """The entries of one queue, oldest first, as one group's filter sees them; three arrays of one length.

    ``sizes``: bytes of the messages; ``stage1``: the entry passes by its tags code or bit map; ``stage2``: the
    message passes the expression (ignored if stage 1 fails). The first entry is at queue offset ``min_offset``.
    """

    sizes: npt.NDArray[np.int32 | np.int64]
    stage1: npt.NDArray[np.bool_]
    stage2: npt.NDArray[np.bool_]
    min_offset: int = 0

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.sizes)


@dataclass(frozen=True, slots=True)
class Pull:
    """One pull: entries ``scanned``, messages ``read`` from the commit log, messages returned (``found``).

    ``min_offset`` and ``max_offset`` are the queue's at the time: the properties MIN_OFFSET and
    MAX_OFFSET that the client puts into each message found (PullAPIWrapper).
    """

    begin_offset: int
    status: GetMessageStatus
    next_begin_offset: int
    scanned: int = 0
    read: int = 0
    found: int = 0
    found_bytes: int = 0
    min_offset: int = 0
    max_offset: int = 0


def simulate_pulls(
    queue: Queue, begin_offset: int, config: BrokerConfig, max_msg_nums: int = DEFAULT_BATCH
) -> Iterator[Pull]:
    """The pulls from ``begin_offset`` until the consumer has caught up, each for at most ``max_msg_nums`` messages.

    All messages count as in memory, as in :func:`get_message`. What depends on the clock is not simulated: pulls held
    at the broker until a message arrives, time-outs, and flow control.
    """
    while True:
        pull = get_message(queue, begin_offset, config, max_msg_nums)
        yield pull
        begin_offset = pull.next_begin_offset
        if begin_offset == queue.max_offset:
            return


def get_message(queue: Queue, begin_offset: int, config: BrokerConfig, max_msg_nums: int = DEFAULT_BATCH) -> Pull:
    """One pull.

    It ends at the end of the consume queue file, when the scanned entries reach ``maxFilterMessageSize`` bytes, or
    when the batch is full: ``max_msg_nums`` messages, ``maxTransferCountOnMessageInMemory`` messages, or
    ``maxTransferBytesOnMessageInMemory`` bytes. (A broker assumes that messages further from the end of the log than
    40 % of its memory are on disk, and then uses the two OnMessageInDisk limits.)
    """
    if (moved := _outside(queue, begin_offset)) is not None:
        status, next_offset = moved
        return Pull(begin_offset, status, next_offset, min_offset=queue.min_offset, max_offset=queue.max_offset)
    entries_a_file = config.consume_queue_file_entries
    limit = max(config.max_filter_message_size, max_msg_nums * CONSUME_QUEUE_UNIT)
    end_by_size = begin_offset - -limit // CONSUME_QUEUE_UNIT
    next_offset = begin_offset
    pull = Pull(begin_offset, GetMessageStatus.NO_MATCHED_MESSAGE, begin_offset)
    for _ in range(config.travel_cq_file_num_when_get_message):
        end_of_file = (next_offset // entries_a_file + 1) * entries_a_file
        end = min(end_of_file, end_by_size, queue.max_offset)
        pull = _scan(queue, pull, next_offset, end, config, max_msg_nums)
        next_offset = pull.next_begin_offset
        if pull.found or next_offset == queue.max_offset:
            break
    return pull


def _outside(queue: Queue, offset: int) -> tuple[GetMessageStatus, int] | None:
    """The status of a pull from an offset without an entry, and the next offset to pull from. None if it has one."""
    if queue.max_offset == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < queue.min_offset:
        return GetMessageStatus.OFFSET_TOO_SMALL, queue.min_offset
    if offset == queue.max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > queue.max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, queue.max_offset
    return None


def _scan(queue: Queue, pull: Pull, begin: int, end: int, config: BrokerConfig, max_msg_nums: int) -> Pull:
    """Continues ``pull``, which has found nothing yet, with the entries [begin, end) of one file."""
    part = slice(begin - queue.min_offset, end - queue.min_offset)
    sizes, stage1 = queue.sizes[part], queue.stage1[part]
    matched = stage1 & queue.stage2[part]
    found = np.cumsum(matched)
    found_bytes = np.cumsum(np.where(matched, sizes, 0))
    found_before: npt.NDArray[np.int64] = found - matched
    bytes_before = found_bytes - np.where(matched, sizes, 0)
    full = (found_before > 0) & (
        (found_before >= min(max_msg_nums, config.max_transfer_count_on_message_in_memory))
        | (bytes_before + sizes > min(MAX_PULL_BYTES, config.max_transfer_bytes_on_message_in_memory))
    )
    scanned = int(full.argmax()) if full.any() else len(sizes)
    count = int(found[scanned - 1]) if scanned else 0
    return Pull(
        begin_offset=pull.begin_offset,
        status=GetMessageStatus.FOUND if count else GetMessageStatus.NO_MATCHED_MESSAGE,
        next_begin_offset=begin + scanned,
        scanned=pull.scanned + scanned,
        read=pull.read + int(np.count_nonzero(stage1[:scanned])),
        found=count,
        found_bytes=int(found_bytes[scanned - 1]) if scanned else 0,
        min_offset=queue.min_offset,
        max_offset=queue.max_offset,
    )
