"""What is wrong with subscriptions, each finding with its share of real messages."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pyarrow.compute as pc

from filtering.delivery.message_filter import MessageFilter, message_filter
from filtering.findings import (
    SEVERITIES,
    FilterOnMessages,
    Finding,
    filters_on_messages,
    static_findings,
    worst_first,
)
from filtering.predicate import TRUE, postorder
from filtering.sql92.syntax.nodes import named_properties
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.history import SubscriptionRow
from filtering.subscriptions.namespace import RETRY_TOPIC_PREFIX
from schemas.answers.facts import BrokerFacts
from schemas.answers.inconsistency import inconsistent_groups, knows_clients
from schemas.commitlog import COMMITLOG
from schemas.delivery_stats import DELIVERY_STATS
from schemas.delta.aggregates import sums
from schemas.delta.table_rows import one_of, within
from schemas.messages.newest_messages import newest_messages
from schemas.messages.property_names import property_names
from schemas.spark_tasks import Session

__all__ = ["SEVERITIES", "Finding", "findings", "findings_of_rows"]

ERROR, WARN, INFO = SEVERITIES
FAILING_SHARE = 0.1
"""An expression that fails on more of its messages is an error."""
NAMED = 3
_Key = tuple[str, str]


def findings(facts: BrokerFacts, session: Session | None = None) -> list[Finding]:
    """The findings of the subscriptions in force, the worst first.

    ``session``: for a log so large that clients who disagree are better looked for by Spark.
    """
    rows = facts.in_force()
    found = findings_of_rows(facts, rows)
    explained = {(each.consumer_group, each.topic) for each in found if each.severity == ERROR}
    found += _never_matched(facts, [row for row in rows if (row.consumer_group, row.topic) not in explained])
    found += _dead_filters(facts, rows)
    found += _inconsistent(facts, session)
    return worst_first(found)


def findings_of_rows(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> list[Finding]:
    """The findings of subscriptions on the messages of a broker, the worst first."""
    found = _without_topic(facts, rows)
    on_topics = [row for row in rows if row.topic in facts.topics and not row.topic.startswith(RETRY_TOPIC_PREFIX)]
    unknown = _unknown_properties(facts, on_topics)
    measured = _on_messages(facts, on_topics)
    for each in static_findings(rows):
        # An integer literal is fine where every message has an integer, and what fails says more.
        if each.code != "integer-literal" or (each.consumer_group, each.topic) not in measured:
            found.append(each)
    for row in on_topics:
        one = measured.get((row.consumer_group, row.topic))
        found += unknown.get((row.consumer_group, row.topic), ())
        if one is not None:
            found += _of_group(row, *one)
    return worst_first(found)


def _without_topic(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> list[Finding]:
    found = []
    for row in rows if facts.topics else ():
        if row.topic not in facts.topics and not row.topic.startswith(RETRY_TOPIC_PREFIX):
            text = f"no message of the log has this topic{_near(row.topic, facts.topics)}"
            found.append(Finding(ERROR, row.consumer_group, row.topic, "topic-without-messages", text))
    return found


def _unknown_properties(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> dict[_Key, list[Finding]]:
    """Properties that an expression names and no message of the topic has."""
    asked: defaultdict[str, set[str]] = defaultdict(set)
    names = [
        (row, named_properties(row.compiled.expression.syntax_tree))
        for row in rows
        if row.compiled.expression is not None
    ]
    for row, properties in names:
        asked[row.topic].update(properties)
    known = property_names(facts.warehouse, facts.name, asked)
    found: defaultdict[_Key, list[Finding]] = defaultdict(list)
    for row, properties in names:
        has = known.get(row.topic, set())
        for name in properties:
            if name not in has:
                text = f"no message has {name}{_near(name, sorted(has))}"
                key = row.consumer_group, row.topic
                found[key].append(Finding(ERROR, *key, "unknown-property", text))
    return found


def _near(name: str, known: Sequence[str]) -> str:
    same = [other for other in known if other.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _on_messages(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> dict[_Key, tuple[FilterOnMessages, int]]:
    """By group and topic, what the filter does with the newest messages of the topic, and how many those are."""
    by_topic: defaultdict[str, list[tuple[SubscriptionRow, MessageFilter]]] = defaultdict(list)
    for row in rows:
        found = message_filter(row, rows, facts.broker)
        if found is not None:
            by_topic[row.topic].append((row, found))
    properties = {
        topic: sorted({name for _, each in of_topic for name in _read_by(each)}) for topic, of_topic in by_topic.items()
    }
    measured = {}
    for topic, messages in newest_messages(facts.warehouse, facts.name, properties).items():
        of_topic = by_topic[topic]
        expressions = [row.compiled.expression for row, _ in of_topic]
        results = filters_on_messages([each for _, each in of_topic], expressions, messages)
        for (row, _), result in zip(of_topic, results, strict=True):
            measured[row.consumer_group, topic] = (result, messages.count)
    return measured


def _read_by(each: MessageFilter) -> Iterator[str]:
    for node in postorder([each.expression, each.failure, each.client_tags]):
        yield from node.properties


def _of_group(row: SubscriptionRow, result: FilterOnMessages, of: int) -> Iterator[Finding]:
    def finding(severity: str, code: str, text: str, messages: int) -> Finding:
        return Finding(severity, row.consumer_group, row.topic, code, text, messages, of)

    if result.failed:
        severity = ERROR if result.failed > of * FAILING_SHARE else WARN
        text = f"{_share(result.failed, of)} fail"
        yield finding(severity, "fails", ": ".join([text, *result.remedies[:1]]), result.failed)
    if result.collided:
        tags = ", ".join(tag or "(no tag)" for tag in dict.fromkeys(result.colliding_tags[:NAMED]))
        text = f"shares a hash with {tags}: {_share(result.collided, of)} are returned by the broker for nothing"
        yield finding(WARN, "hash-collision", f"{text}, and dropped by the clients", result.collided)
    is_sql92 = not is_tag_type(row.expression_type)
    if is_sql92 and result.matched == of and row.compiled.expression and row.compiled.expression.predicate is not TRUE:
        yield finding(INFO, "matches-all", f"all of the newest {of:,} messages match: is a filter needed?", of)


def _share(messages: int, of: int) -> str:
    share = f"{messages / of:.0%}" if messages / of >= 0.01 else "under 1%"
    return f"{messages:,} of {of:,} messages ({share})"


def _never_matched(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> Iterator[Finding]:
    """Groups that scanned messages in all nights so far, and got none."""
    counts = sums(facts.rows(DELIVERY_STATS), ["consumer_group", "topic"], ["scanned", "passed_stage2", "delivered"])
    for row in rows:
        key = row.consumer_group, row.topic
        of_group = counts.get(key)
        if of_group is None or not of_group["scanned"] or of_group["delivered"] or of_group["passed_stage2"]:
            continue
        text = f"none of {of_group['scanned']:,} messages matched so far"
        yield Finding(WARN, *key, "never-matched", text, 0, of_group["scanned"])


def _dead_filters(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> Iterator[Finding]:
    """Filters of groups that left: the broker still evaluates them on each message until they are cleaned."""
    broker = facts.broker
    if not (broker.enable_calc_filter_bit_map and broker.enable_consume_queue_ext):
        return
    dead = [row for row in rows if row.dead_time is not None and row.compiled.compile_error is None]
    since = min((row.dead_time for row in dead if row.dead_time is not None), default=None)
    if since is None:
        return
    where = [one_of("topic", {row.topic for row in dead}), within("store_timestamp", since)]
    stored = facts.rows(COMMITLOG, ["topic", "store_timestamp"], where)
    for row in dead:
        of_topic = stored.filter(pc.equal(stored["topic"], row.topic))
        times = of_topic["store_timestamp"]
        later = int(pc.sum(pc.greater(times, row.dead_time)).as_py() or 0)
        text = f"the group has left; the broker evaluated its expression on {later:,} messages since, for nobody"
        yield Finding(INFO, row.consumer_group, row.topic, "dead-filter", text, later, later)


def _inconsistent(facts: BrokerFacts, session: Session | None) -> Iterator[Finding]:
    if knows_clients(facts):
        for group in inconsistent_groups(facts, session):
            severity = ERROR if group.lost else WARN
            text = f"{group.last_state}; {group.lost:,} messages lost to overruled clients"
            yield Finding(
                severity, group.consumer_group, group.topic, "inconsistent-clients", text, group.lost, group.lost
            )
