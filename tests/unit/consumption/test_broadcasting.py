"""Groups whose clients broadcast, compared with a model of each client alone, in random lives over several nights."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

from filtering.broker_config import BrokerConfig
from filtering.consumption.broadcasting import broadcasting_clients, clients_that_pulled
from filtering.consumption.offsets import BrokerOffsets, OffsetsSoFar
from filtering.consumption.plan import NightPlan, first_difference, plan_night
from filtering.delivery.pull_window import Reason, StartReason, WindowKind
from filtering.sql92 import Expressions
from filtering.subscriptions.events import SubscriptionEvent, in_order, parse_event
from filtering.subscriptions.history import subscription_history
from filtering.time_spans import BEGINNING, FOREVER

END = 400
"""ms: messages are stored at 1, 3, 5, …, and clients come and leave at even times."""


def come(at: int, client: str, consume_from: str | int) -> str:
    subscription = {"topic": "T", "type": "TAG", "expression": "*"}
    row = {"at": at, "op": "heartbeat", "group": "cg", "client_id": client, "subscriptions": [subscription]}
    return json.dumps(row | {"consume_from": consume_from, "message_model": "broadcasting"})


def leave(at: int, client: str) -> str:
    row = {"at": at, "op": "unregister", "group": "cg", "client_id": client, "message_model": "broadcasting"}
    return json.dumps(row)


def life(rng: random.Random) -> tuple[list[str], dict[int, set[int]]]:
    """The lines of a random life of four clients, and by message, stored at its number, when each client pulled it."""
    lines: list[str] = []
    pulled: defaultdict[int, set[int]] = defaultdict(set)
    for client in range(4):
        starts: list[str | int] = ["last", "last", "first", 2 * rng.randrange(1, END // 2)]
        start = rng.choice(starts)
        times = sorted(rng.sample(range(2, END, 2), rng.randrange(1, 7)))
        next_offset = None
        for begin, end in zip(times[::2], [*times[1::2], FOREVER][: len(times[::2])], strict=True):
            lines += [come(begin, f"c{client}", start)] + ([leave(end, f"c{client}")] if end != FOREVER else [])
            if next_offset is None:
                begins = {"first": 0, "last": begin}
                next_offset = begins[start] if isinstance(start, str) else min(start, begin)
            for message in range(next_offset | 1, min(end, END), 2):
                pulled[message].add(max(message, begin))
            next_offset = end
    return lines, pulled


def planned(events: Sequence[SubscriptionEvent], as_of: int | None) -> NightPlan:
    config = BrokerConfig()
    return plan_night(subscription_history(events, config), events, OffsetsSoFar(as_of), BrokerOffsets(), config)


@pytest.mark.parametrize("seed", range(100))
def test_each_delivery_is_told_once_when_the_first_client_pulls_it(seed: int) -> None:
    rng = random.Random(seed)
    lines, pulled = life(rng)
    ends = [*sorted(rng.sample(range(2, END, 2), 3)), END]
    delivered_at: defaultdict[int, list[int]] = defaultdict(list)
    uncertain: set[int] = set()
    last = None
    for end in ends:
        events = in_order(event for event in map(parse_event, lines) if event.at <= end)
        plan = planned(events, last)
        for message in range(1, end, 2):
            is_new = last is None or message > last
            for window in [*plan.online, *plan.backlog]:
                if window.covers(0, 0, 0, message) and (is_new or window.kind is not WindowKind.ONLINE):
                    delivered_at[message].append(message if window.available_at is None else window.available_at)
            if any(change.stored_from <= message < change.stored_to for change in plan.uncertain_ranges):
                uncertain.add(message)
        last = end
    assert delivered_at == {message: [min(times)] for message, times in pulled.items()}
    assert uncertain == {message for message, times in delivered_at.items() if times != [message]}


@pytest.mark.parametrize(
    ("consume_from", "begin", "reason"),
    [("first", BEGINNING, StartReason.FIRST), (4, 4, StartReason.TIME_OF_BROADCASTING)],
)
def test_why_a_client_pulls_what_waits_for_it_and_why_it_is_uncertain(
    consume_from: str | int, begin: int, reason: StartReason
) -> None:
    plan = planned(in_order(map(parse_event, [come(10, "c1", consume_from)])), None)
    waiting = [window for window in [*plan.backlog, *plan.online] if window.stored_from < 10]
    assert [(window.reason, window.stored_from, window.stored_to) for window in waiting] == [(reason, begin, 10)]
    (change,) = plan.uncertain_ranges
    assert (change.reason, change.stored_from, change.stored_to) == (Reason.OWN_OFFSETS, begin, 10)


def test_a_client_that_leaves_under_another_id_changes_who_waits() -> None:
    both = [come(10, "c1", "last"), come(10, "c2", "last")]
    one, other = ([parse_event(line) for line in [*both, leave(20, client)]] for client in ("c1", "c2"))
    assert first_difference(one, other, 100, BrokerConfig(), Expressions()) == 20


def test_a_client_that_leaves_when_it_comes_pulls_nothing() -> None:
    lines = [come(10, "c1", "first"), leave(10, "c1"), come(10, "c2", "first")]
    stays = broadcasting_clients(in_order(map(parse_event, lines)))["cg", "T"]
    assert clients_that_pulled(stays, 5, 10) == ["c2"]


def test_a_client_that_drops_a_topic_leaves_it() -> None:
    other = come(20, "c1", "first").replace('"topic": "T"', '"topic": "T2"')
    stays = broadcasting_clients(in_order(map(parse_event, [come(10, "c1", "first"), come(15, "c1", "first"), other])))
    assert [(stay.begin, stay.end) for stay in stays["cg", "T"]] == [(10, 20)]
    assert [(stay.begin, stay.end) for stay in stays["cg", "T2"]] == [(20, FOREVER)]
