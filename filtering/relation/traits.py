"""Traits: what messages have in common and other messages do not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from filtering.java.numbers import parse_double
from filtering.sql92.syntax.tokens import string_literal

SYSTEM_PROPERTIES = frozenset(
    {
        "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET",
        "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
        "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME",
        "INNER_NUM", "INNER_BASE", "DUP_INFO", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET",
        "__transactionId__", "TRANSACTION_CHECK_TIMES", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL",
        "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME",
        "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT",
        "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES",
        "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "TIMER_DELAY_MS", "TIMER_ROLL_LABEL", "__BORNHOST",
        "BORN_TIMESTAMP", "ORIGIN_GROUP", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "TRANS_OFFSET",
        "_SYS_MSG_PRIORITY_", "__LITE_TOPIC", "__CRC32#", "__RMQ.TRANSIENT.TOPIC_SYS_FLAG",
        "__RMQ.TRANSIENT.GROUP_SYS_FLAG",
    }
)  # fmt: skip
"""The names of MessageConst in RocketMQ 5.5 without TAGS, KEYS and __SHARDINGKEY, whose values the sender chooses."""
LEAST_SHARE = 0.5
LEAST_LIFT = 0.05
MOST = 3


@dataclass(frozen=True)
class Trait:
    """A condition on one property that ``share`` of the messages and ``share_of_others`` meet, from 0 to 1.

    ``values``: one text of the property ``name``, or the least and the greatest number; empty: it is missing.
    """

    name: str
    values: tuple[str, ...]
    share: float
    share_of_others: float

    @property
    def text(self) -> str:
        """As a condition: ``region = 'us-east'``."""
        if not self.values:
            return f"{self.name} is missing"
        if len(self.values) == 1:
            return f"{self.name} = {string_literal(self.values[0])}"
        return f"{self.name} is from {self.values[0]} to {self.values[1]}"


def common_traits(messages: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]) -> list[Trait]:
    """Traits that most messages have and fewer of the others. Those with the greatest difference come first.

    Properties that RocketMQ sets itself are left out. Without others there is nothing to compare with, and no trait.
    """
    if not messages or not others:
        return []
    names = dict.fromkeys(name for message in [*messages, *others] for name in message if name not in SYSTEM_PROPERTIES)
    traits = []
    for name in names:
        texts = Counter(message.get(name) for message in messages)
        other_texts = Counter(message.get(name) for message in others)
        text, count = texts.most_common(1)[0]
        share = count / len(messages)
        if share >= LEAST_SHARE:
            traits.append(Trait(name, () if text is None else (text,), share, other_texts[text] / len(others)))
        elif (numbers := _numbers(texts)) is not None:
            low, high = min(numbers, key=itemgetter(0)), max(numbers, key=itemgetter(0))
            inside = sum(low[0] <= number <= high[0] for number, _ in _numbers(other_texts, strict=False) or ())
            traits.append(Trait(name, (low[1], high[1]), 1.0, inside / len(others)))
    telling = [trait for trait in traits if trait.share - trait.share_of_others >= LEAST_LIFT]
    return sorted(telling, key=lambda trait: trait.share_of_others - trait.share)[:MOST]


def _numbers(texts: Counter[str | None], strict: bool = True) -> list[tuple[float, str]] | None:
    """The numbers among the texts, once for each message; None if ``strict`` and a text is not a number."""
    numbers = []
    for text, count in texts.items():
        number = parse_double(text) if text is not None else None
        if number is not None and number == number:
            numbers += [(number, text or "")] * count
        elif strict:
            return None
    return numbers
