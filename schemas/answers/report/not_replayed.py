"""Says which consumption of a broker is not replayed, as far as its store and its messages show it."""

from __future__ import annotations

from collections.abc import Iterator

from filtering.counted import listed
from filtering.subscriptions.namespace import LMQ_PREFIX, REVIVE_TOPIC_PREFIX, is_lmq
from schemas.answers.facts import BrokerFacts
from schemas.commitlog import COMMITLOG, NAME_SEPARATOR
from schemas.delta.open_data_file import open_data_file
from schemas.delta.table_rows import files_that_may_hold, one_of

MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
"""The property of a message with the names of more queues that get an entry for it (MultiDispatchUtils)."""
NAMED = 3


def not_replayed(facts: BrokerFacts, run: str) -> Iterator[str]:
    """One line for each kind of consumption that is not replayed. ``run``: whose messages are looked at."""
    found = facts.not_replayed
    revived = [topic for topic in facts.topics if topic.startswith(REVIVE_TOPIC_PREFIX)]
    if found.pop:
        consumers = [f"{group} on {topic}" for group, topic in found.pop]
        yield f"not replayed: consumption by POP, of {listed(consumers, NAMED)}"
    elif revived:
        yield f"not replayed: consumption by POP, of groups that are not known ({revived[0]} has messages)"
    lmq_groups = [f"{row.consumer_group} on {row.topic}" for row in facts.in_force if is_lmq(row.topic)]
    if lmq_groups or found.has_lmq or _has_multi_dispatch(facts, run):
        whose = f", of {listed(lmq_groups, NAMED)}" if lmq_groups else ""
        yield f"not replayed: {LMQ_PREFIX} queues, which get the messages of other topics ({MULTI_DISPATCH}){whose}"
    yield from (f"not replayed: {text}" for text in found.others)


def _has_multi_dispatch(facts: BrokerFacts, run: str) -> bool:
    """Whether a message that the run read has the property."""
    storage = facts.warehouse.log(COMMITLOG).storage
    for stored in files_that_may_hold(facts.warehouse.files(COMMITLOG, facts.name), [one_of("run", [run])]):
        with open_data_file(COMMITLOG, storage, stored.path, ["property_names"]) as file:
            for group in range(len(file.row_groups)):
                distinct = file.read(group, ["property_names"])["property_names"].unique().drop_null()
                if any(MULTI_DISPATCH in names.split(NAME_SEPARATOR) for names in distinct.to_pylist()):
                    return True
    return False
