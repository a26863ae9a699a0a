"""Groups whose clients subscribe differently: random lives of a group, beside a slow model, message by message.

At each time, each client reads its share of the queues, and checks its own tags. What no client reads waits until one
does, and is then filtered by the tags in force. An operator may set the offset of a queue.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest

from filtering.broker_config import BrokerConfig
from filtering.consumption.clients import disagreeing_states, drop_differently
from filtering.consumption.offsets import BrokerOffsets, OffsetsSoFar, TopicOffsets
from filtering.consumption.plan import NightPlan, plan_night
from filtering.delivery.pull_window import NO_END, PullWindow
from filtering.predicate import TagsCodeIn, TextIn
from filtering.subscriptions.events import in_order, parse_event
from filtering.subscriptions.history import subscription_history
from filtering.tags_code import java_hash
from tests.depth import examples

QUEUES = frozenset(range(7))
EVERY, MESSAGES = 10, 14
"""ms between two messages of each queue, and their number."""
Pulled = tuple[int | None, str, int, str]
"""When a message was pulled (ms; None: when it was stored), the tag in force and since when, and the client's tag."""


@dataclass
class Group:
    """The clients with their tags (None: they do not subscribe to the topic), and the tag in force since a time."""

    clients: dict[str, str | None] = field(default_factory=dict)
    in_force: str | None = None
    since: int = 0
    reset: tuple[int, int] | None = None
    """The queue id and the offset, if an operator just set it."""

    def reader(self, queue_id: int) -> str | None:
        """The tag of the client that reads a queue: each has consecutive queues, and the first ones have one more."""
        size, rest = divmod(len(QUEUES), len(self.clients) or 1)
        readers = [self.clients[name] for i, name in enumerate(sorted(self.clients)) for _ in range(size + (i < rest))]
        return readers[queue_id] if readers else None


def life(rng: random.Random) -> tuple[list[str], list[tuple[int, Group]]]:
    """Subscription events, and the group after each of them. The broker does not take a subscription of version 0."""
    lines: list[str] = []
    states: list[tuple[int, Group]] = []
    group, version = Group(), 0

    def happens(at: int, op: str, **more: Any) -> None:
        lines.append(json.dumps({"at": at, "op": op, "group": "cg", **more}))
        states.append((at, replace(group, clients=dict(group.clients))))

    def heartbeat(at: int, client: str, tag: str | None) -> None:
        nonlocal version
        version += 1
        is_old = rng.random() < 0.5 and None not in (tag, group.in_force)
        group.clients[client] = tag
        if not is_old:
            group.in_force, group.since = tag, at
        topic, expression = ("U", "*") if tag is None else ("T", tag)
        listed = {"topic": topic, "type": "TAG", "expression": expression, "sub_version": 0 if is_old else version}
        happens(at, "heartbeat", client_id=client, subscriptions=[listed], consume_from="first")

    at = 0
    heartbeat(at, "a", "x")
    while at < MESSAGES * EVERY:
        at = states[-1][0] + rng.choice((1, 3, EVERY, 2 * EVERY))
        client, tag = rng.choice("abc"), rng.choice(("x", "y", None, "leaves"))
        if tag != "leaves":
            heartbeat(at, client, tag)
            # A heartbeat without the topic removes it, until another client's heartbeat names it.
            others = [name for name, own in group.clients.items() if own is not None] if tag is None else []
            for number, name in enumerate(others, 1):
                heartbeat(at + number, name, group.clients[name])
        elif rng.random() < 0.4:
            queue_id, offset = rng.choice(range(len(QUEUES))), rng.randint(0, min(MESSAGES, -(-at // EVERY)))
            group.reset = queue_id, offset
            happens(at, "reset_offset", topic="T", queue_id=queue_id, offset=offset)
            group.reset = None
        elif client in group.clients:
            del group.clients[client]
            if not group.clients:
                group.in_force = None
            happens(at, "unregister", client_id=client)
    return lines, states


def model(states: list[tuple[int, Group]]) -> dict[tuple[int, int], list[Pulled]]:
    """By queue id and offset, how a message was pulled."""
    result: defaultdict[tuple[int, int], list[Pulled]] = defaultdict(list)
    places = dict.fromkeys(QUEUES, 0)
    happened: list[tuple[int, int, Group | None]] = [
        *((at, 0, group) for at, group in states),
        *((EVERY * offset, 1, None) for offset in range(MESSAGES)),
    ]
    group, stored = Group(), 0
    for at, _, after in sorted(happened, key=lambda each: each[:2]):
        if after is None:
            stored += 1
        else:
            group = after
        if group.reset is not None and after is not None:
            places[group.reset[0]] = group.reset[1]
        for queue_id in QUEUES:
            reader = group.reader(queue_id)
            if group.in_force is not None and reader is not None:
                for offset in range(places[queue_id], stored):
                    available_at = None if after is None else at
                    result[queue_id, offset].append((available_at, group.in_force, group.since, reader))
                places[queue_id] = max(stored, places[queue_id])
    return result


def pulls(windows: list[PullWindow], stored_at: int, queue_id: int, offset: int) -> Iterator[Pulled]:
    for window in (window for window in windows if window.topic == "T"):
        low, high = window.offsets.get(queue_id, (0, 0) if window.only_listed else (0, NO_END))
        assert window.stored_from < window.stored_to
        if window.stored_from <= stored_at < window.stored_to and low <= offset < high:
            tags, checked = window.message_filter.tags, window.message_filter.client_tags
            assert isinstance(tags, TagsCodeIn)
            assert isinstance(checked, TextIn)
            (in_force,) = (tag for tag in "xy" if java_hash(tag) in tags.codes)
            (read_by,) = checked.texts
            yield window.available_at, in_force, window.subscription_from, read_by


def night(lines: list[str], so_far: OffsetsSoFar, messages: int) -> NightPlan:
    """The plan of a night after which each queue has some messages."""

    def stored_at(topic: str, queue_id: int, offset: int) -> int | None:
        return EVERY * offset if offset < messages else None

    events = [parse_event(line) for line in lines]
    offsets = BrokerOffsets(min_offsets={"T": dict.fromkeys(QUEUES, 0)}, stored_at=stored_at)
    return plan_night(subscription_history(events, BrokerConfig()), events, so_far, offsets, BrokerConfig())


def came_to(made: NightPlan, as_of: int, messages: int) -> OffsetsSoFar:
    """How far the group came in its first night, which ended at ``as_of`` (ms)."""
    topic = TopicOffsets.empty(dict.fromkeys(QUEUES, messages), ["cg"])
    (group,) = (group for group in made.groups if group.key == ("cg", "T"))
    stopped = messages if group.stopped_at is None else -(-group.stopped_at // EVERY)
    topic.decided_to[:] = [group.decided_to.get(queue_id, stopped) for queue_id in sorted(QUEUES)]
    return OffsetsSoFar(as_of, {"T": topic})


@pytest.mark.parametrize("seed", range(examples(15, deep=40)))
def test_each_message_is_pulled_by_the_client_that_reads_its_queue(seed: int) -> None:
    """In one night, or in two."""
    rng = random.Random(seed)
    lines, states = life(rng)
    border = rng.randrange(1, MESSAGES)
    as_of = EVERY * border - rng.randint(1, EVERY)
    before = [line for line in lines if json.loads(line)["at"] <= as_of]
    first = night(before, OffsetsSoFar(), border)
    second = night(lines, came_to(first, as_of, border), MESSAGES)
    whole = night(lines, OffsetsSoFar(), MESSAGES)
    expected = model(states)
    for offset, queue_id in product(range(MESSAGES), QUEUES):
        first_windows = [*first.online, *first.backlog, *second.backlog]
        two_nights_windows = first_windows if offset < border else [*second.online, *second.backlog]
        for windows in ([*whole.online, *whole.backlog], two_nights_windows):
            counts = Counter(pulls(windows, EVERY * offset, queue_id, offset))
            assert counts == Counter(expected[queue_id, offset]), (queue_id, offset, border)


def test_a_client_alone_drops_alike_whatever_the_broker_has() -> None:
    """c2 subscribes with an older version, so the broker keeps the tag of c1, also when c1 has left."""

    def subscribed(at: int, client: str, tag: str, version: int) -> str:
        subscription = {"topic": "T", "type": "TAG", "expression": tag, "sub_version": version}
        row = {"at": at, "op": "heartbeat", "group": "cg", "client_id": client, "subscriptions": [subscription]}
        return json.dumps(row)

    left = json.dumps({"at": 30, "op": "unregister", "group": "cg", "client_id": "c1"})
    lines = [subscribed(10, "c1", "a", 9), subscribed(20, "c2", "b", 5), left]
    both, alone = disagreeing_states(in_order(map(parse_event, lines)))
    assert (drop_differently(both), drop_differently(alone)) == (True, False)
