"""Why a group begins where it begins, in the words that answers show."""

from __future__ import annotations

import pytest

from filtering.consumption.group import GroupStart
from filtering.consumption.offsets import BrokerOffsets, OffsetsSoFar, TopicOffsets
from filtering.delivery.pull_window import StartReason
from filtering.subscriptions.events import ConsumeFrom, ConsumeStart, SubscriptionEvent, parse_event

FIRST, LAST, TIME = ConsumeFrom.FIRST, ConsumeFrom.LAST, 500
AT = 1000


def reset(at: int, offset: int) -> SubscriptionEvent:
    return parse_event(
        f'{{"at": {at}, "op": "reset_offset", "group": "cg", "topic": "T", "queue_id": 0, "offset": {offset}}}'
    )


def committed(offset: int, as_of: int) -> OffsetsSoFar:
    topic = TopicOffsets.empty({0: 100}, ["cg"])
    topic.committed[:] = offset
    return OffsetsSoFar(as_of, {"T": topic})


@pytest.mark.parametrize(
    ("consume_from", "min_offsets", "log_start", "begins_at", "reason"),
    [
        (FIRST, {0: 0}, 0, 0, StartReason.FIRST),
        (FIRST, {0: 7}, 900, 7, StartReason.FIRST),
        (LAST, {0: 0}, 0, 0, StartReason.LAST_WITH_FIRST_MESSAGE),
        (LAST, {0: 0, 1: 7}, 900, 0, StartReason.LAST_WITH_FIRST_MESSAGE),
        (LAST, {}, 0, 0, StartReason.LAST_WITH_FIRST_MESSAGE),
        (LAST, {1: 0}, 900, 0, StartReason.LAST_WITH_FIRST_MESSAGE),
        (LAST, {0: 7}, 900, "end", StartReason.LAST),
        (LAST, {1: 7}, 900, "end", StartReason.LAST),
        (LAST, {}, 900, "end", StartReason.LAST),
        (TIME, {0: 0}, 0, 0, StartReason.TIME_WITH_FIRST_MESSAGE),
        (TIME, {0: 7}, 900, "end", StartReason.TIME),
    ],
)
def test_without_an_offset(
    consume_from: ConsumeStart, min_offsets: dict[int, int], log_start: int, begins_at: int | str, reason: StartReason
) -> None:
    """``begins_at`` is where the plan lets it begin; "end": at what is stored from then on, or from the time on."""
    offsets = BrokerOffsets(min_offsets={"T": min_offsets} if min_offsets else {}, log_start=log_start)
    start = GroupStart(("cg", "T"), consume_from, OffsetsSoFar(), offsets)
    assert start.reasons([0], AT, ())[0] is reason
    position = start.position(AT, ())
    at_end = 0 not in position.offsets and position.stored_from is not None
    since_time = consume_from is TIME and reason is StartReason.TIME
    assert at_end or since_time if begins_at == "end" else position.offsets.get(0, 0) == begins_at


@pytest.mark.parametrize(
    ("consume_from", "min_offset", "reason"),
    [
        (LAST, 0, StartReason.RETRY_TOPIC),
        (LAST, 7, StartReason.RETRY_TOPIC),
        (FIRST, 7, StartReason.RETRY_TOPIC),
        (TIME, 0, StartReason.RETRY_TOPIC),
        (TIME, 7, StartReason.RETRY_TOPIC_WITH_TIME),
    ],
)
def test_of_a_retry_topic(consume_from: ConsumeStart, min_offset: int, reason: StartReason) -> None:
    offsets = BrokerOffsets(min_offsets={"%RETRY%cg": {0: min_offset}}, log_start=min_offset)
    assert GroupStart(("cg", "%RETRY%cg"), consume_from, OffsetsSoFar(), offsets).reasons([0], AT, ())[0] is reason


@pytest.mark.parametrize(
    ("so_far", "resets", "begins_at", "reason"),
    [
        (committed(5, 100), [], 5, StartReason.COMMITTED),
        (committed(5, 100), [reset(50, 9)], 5, StartReason.COMMITTED),
        (committed(5, 100), [reset(200, 9)], 9, StartReason.RESET),
        (committed(5, 100), [reset(200, 0)], 0, StartReason.RESET),
        (OffsetsSoFar(), [reset(200, 9)], 9, StartReason.RESET),
        (OffsetsSoFar(), [reset(AT + 1, 9)], None, StartReason.LAST),
    ],
)
def test_at_an_offset_that_the_broker_has(
    so_far: OffsetsSoFar, resets: list[SubscriptionEvent], begins_at: int | None, reason: StartReason
) -> None:
    start = GroupStart(("cg", "T"), LAST, so_far, BrokerOffsets(min_offsets={"T": {0: 3}}, log_start=900))
    assert start.reasons([0], AT, resets)[0] is reason
    assert start.position(AT, resets).offsets.get(0) == begins_at
