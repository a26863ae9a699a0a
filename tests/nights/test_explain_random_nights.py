"""explain and export missed in random nights: what each group did with each message is what a slow model says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from answers.explain import Explainer, Explanation
from answers.facts import open_facts
from answers.messages import read
from filtering.delivery import Outcome
from jobs import nightly
from schemas.delta.warehouse import Warehouse
from tests.broker_log import Message
from tests.depth import examples
from tests.nights.commands import Run, night, rows_of
from tests.nights.consumption_model import Model, Pull
from tests.nights.missed_rows import assert_said_alike, missed_rows
from tests.nights.random_broker import RandomBroker, Trouble

NIGHTS = 4
Answer = tuple[str, int | str | None]
"""DELIVERED and when, STOPPED and the expression that decided, or another outcome."""


def expected(pulls: Sequence[Pull], is_pending: bool) -> Answer:
    received = [pull.available_at for pull in pulls if pull.matches]
    if received:
        return "DELIVERED", received[-1]
    if is_pending:
        return "PENDING", None
    return ("STOPPED", pulls[-1].expression) if pulls else ("NOT_SUBSCRIBED", None)


def answer_of(explanation: Explanation) -> Answer:
    if explanation.outcome is Outcome.DELIVERED:
        return "DELIVERED", explanation.pulled_at
    if explanation.outcome in (Outcome.PENDING, Outcome.NOT_SUBSCRIBED):
        return str(explanation.outcome), None
    assert explanation.subscription is not None
    return "STOPPED", explanation.subscription.expression


@pytest.mark.parametrize("trouble", [Trouble.NONE, Trouble.DELETES, Trouble.RECREATES], ids=lambda each: each.value)
@pytest.mark.parametrize("seed", range(100, 100 + examples(1, 6)))
def test_messages_are_explained_as_a_slow_model_says(run: Run, tmp_path: Path, seed: int, trouble: Trouble) -> None:
    broker, model, warehouse = RandomBroker(seed, tmp_path), Model(), tmp_path / "w"
    broker.has_queues = True
    messages: dict[int, Message] = {}
    for _ in range(NIGHTS):
        happened = broker.next_night(trouble)
        messages |= {message.stored_at: message for message in happened.messages}
        model.night(*happened)
        ended = run(nightly, *night(warehouse, broker.store, broker.events, broker.config))
        assert ended.code == 0, ended
        facts = open_facts(Warehouse.at(str(warehouse)))
        explainer = Explainer(facts)
        pulls: defaultdict[tuple[str, int], list[Pull]] = defaultdict(list)
        for pull in model.pulls:
            pulls[pull.group, pull.stored_at].append(pull)
        offsets = [row["commitlog_offset"] for row in rows_of(warehouse, "commitlog")]
        for stored_message in read(facts, offsets):
            message = messages[stored_message.store_timestamp]
            is_in_log = stored_message.commitlog_offset >= (facts.last.log_start or 0)
            for group in explainer.groups_of(stored_message):
                is_pending = is_in_log and model.waits(group, message)
                answer = answer_of(explainer.explain(stored_message, group))
                place = group, message.topic, message.queue_id, message.queue_offset
                assert (place, answer) == (place, expected(pulls[group, message.stored_at], is_pending))
    for group in facts.groups:
        assert_said_alike(facts, group, missed_rows(facts, group))
