"""What became of a message that a group popped, and by which pop it was passed over: from the rows of pops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from answers.explain import FoundMessage
from answers.facts import BrokerFacts
from filtering.pops.record import retry_topics, subscribed_topic
from schemas.delta.table_rows import Condition, one_of
from schemas.errors import time_text
from schemas.pops import POPS

_Row = Mapping[str, Any]


class PopsOfMessages:
    """The pops of groups on one broker."""

    def __init__(self, facts: BrokerFacts) -> None:
        self._facts = facts

    def is_popping(self, message: FoundMessage, consumer_group: str) -> bool:
        """Whether the group ever popped the message's topic, as far as the broker wrote it down."""
        return (consumer_group, subscribed_topic(consumer_group, message.topic)) in self._facts.popping

    def text(self, message: FoundMessage, consumer_group: str) -> str:
        """Each pop of the message, and what became of it; empty if no pop handed it out."""
        of_message = one_of("commitlog_offset", [message.commitlog_offset])
        pops = self._rows(consumer_group, [message.topic], [of_message])
        most_attempts = self._facts.pop_groups.most_attempts(consumer_group)
        return "; ".join(_text(self._chain(pop, consumer_group), most_attempts) for pop in pops)

    def passed_over_at(self, message: FoundMessage, consumer_group: str) -> int | None:
        """The time (ms) of the pop that read the message and did not hand it out; None if the record has none."""
        queue = one_of("queue_id", [message.queue_id])
        last: dict[tuple[int, int], int] = {}
        for row in self._rows(consumer_group, [message.topic], [queue]):
            if row["record_offset"] > message.commitlog_offset:
                pop = row["popped_at"], row["start_offset"]
                last[pop] = max(row["queue_offset"], last.get(pop, 0))
        at = message.queue_offset
        return min((popped_at for (popped_at, start), end in last.items() if start <= at < end), default=None)

    def _chain(self, pop: _Row, consumer_group: str) -> list[_Row]:
        """A pop, and those of its redeliveries."""
        chain = [pop]
        topics = retry_topics(consumer_group, subscribed_topic(consumer_group, pop["topic"]))
        again = {row["commitlog_offset"]: row for row in self._rows(consumer_group, topics, [])}
        while (following := again.get(chain[-1]["redelivered_as"])) is not None:
            chain.append(following)
        return chain

    def _rows(self, consumer_group: str, topics: Sequence[str], where: Sequence[Condition]) -> list[_Row]:
        if POPS.name not in self._facts.last.tables:
            return []
        wanted = [one_of("consumer_group", [consumer_group]), one_of("topic", topics), *where]
        rows: list[_Row] = self._facts.rows(POPS, None, wanted).to_pylist()
        return sorted(rows, key=lambda row: (row["popped_at"], row["record_offset"]))


def _text(chain: Sequence[_Row], most_attempts: int) -> str:
    """What became of a message that was popped, in the order of time."""
    first = chain[0]
    parts = [f"popped {time_text(first['popped_at'])} for {first['invisible_time'] / 1000:g} s"]
    for number, pop in enumerate(chain):
        if number:
            parts.append(f"came again {time_text(pop['popped_at'])} on {pop['topic']} (attempt {pop['attempt']})")
        if pop["renewed_at"] is not None:
            parts.append(f"asked for more time {time_text(pop['renewed_at'])}")
        if (pop["attempt"] or 0) > most_attempts:
            parts.append("given up: popped once too often")
        elif pop["acknowledged_at"] is not None:
            parts.append(f"acknowledged {time_text(pop['acknowledged_at'])}")
        elif pop["redelivered_as"] is not None and number == len(chain) - 1:
            parts.append("not acknowledged, and stored again, but not popped yet")
        elif pop["redelivered_as"] is not None:
            parts.append("not acknowledged")
        else:
            parts.append(f"not acknowledged yet, in flight until {time_text(pop['visible_at'])}")
    return ", ".join(parts)
