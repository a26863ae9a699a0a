"""Finds problems of subscriptions, each with its share of the stored messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from answers.facts import BrokerFacts
from answers.inconsistency import inconsistent_groups
from answers.lag import away_beyond_end
from filtering.consumption.clients import assumption
from filtering.counted import counted, did_you_mean, listed
from filtering.delivery.message_filter import MessageFilter, delivers, message_filter
from filtering.findings import (
    ABOUT_TAGS,
    ERROR,
    FAILING_SHARE,
    INFO,
    WARN,
    FilterOnMessages,
    Finding,
    filters_on_messages,
    refused_findings,
    static_findings,
    worst_first,
)
from filtering.frozen import frozen
from filtering.names import is_retry_topic
from filtering.predicate import FALSE, TRUE, And, Not, postorder
from filtering.rocketmq_version import NEWEST, TEXT_SEARCHES_SINCE, RocketMQVersion
from filtering.sql92 import CompiledExpression
from filtering.sql92.linter import misnamed
from filtering.sql92.nodes import named_properties, unquoted_texts
from filtering.sql92.tokens import text_search_words
from filtering.subscription_data import is_tag_type
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.subscription_row import SubscriptionRow
from schemas.commitlog import COMMITLOG
from schemas.delta.table_rows import group_numbers, one_of, within
from schemas.messages.newest_messages import newest_messages
from schemas.messages.stored_messages import property_names
from schemas.spark_tasks import Session
from schemas.tables import DELIVERY_STATS, POPS

NAMED = 3
_SAID_BY_MESSAGES = frozenset({"integer-literal", "unquoted-text", "misnamed-property"})
Measured = dict[GroupTopic, tuple[FilterOnMessages, int]]
"""By group and topic, the result of a filter on messages, and their number."""


def findings(facts: BrokerFacts, session: Session | None = None, upgrade: RocketMQVersion = NEWEST) -> list[Finding]:
    """The findings of the subscriptions in force, the worst first. Raises UsageError for a replay.

    ``session`` starts Spark, which searches a large log for clients that disagree. ``upgrade``: the version of which
    the broker might be one day.
    """
    rows = facts.in_force
    all_findings, _ = _findings(facts, rows)
    all_findings += _never_matched(facts, _unexplained(rows, all_findings))
    all_findings += _dead_filters(facts, rows)
    for ahead in away_beyond_end(facts):
        all_findings.append(Finding(WARN, ahead.consumer_group, ahead.topic, "offset-beyond-end", ahead.text))
    all_findings += [*_inconsistent(facts, session), *_acknowledged_late(facts)]
    all_findings += [*_changed_by_upgrade(facts, rows, upgrade), *_read_for_unknown_version(facts, rows)]
    return worst_first(all_findings)


def findings_without_messages(
    facts: BrokerFacts, own: Iterable[Finding], session: Session | None = None
) -> list[Finding]:
    """The findings of :func:`findings` that need no messages: those of each subscription alone, and of its clients.

    ``own``: the :func:`own_findings` of the subscriptions in force.
    """
    return worst_first([*own, *_inconsistent(facts, session)])


def findings_of_rows(
    facts: BrokerFacts, rows: Sequence[SubscriptionRow], upgrade: RocketMQVersion = NEWEST
) -> list[Finding]:
    """The findings of new subscriptions on the messages of a broker, the worst first.

    Raises UsageError for a replay.
    """
    all_findings, measured = _findings(facts, rows)
    for row, result, total in _results(_unexplained(rows, all_findings), measured):
        if total and not result.matched:
            text = f"none of the newest {counted(total, 'message')} matches"
            all_findings.append(Finding(WARN, *row.key, "matches-none", text, 0, total))
    all_findings += [*_changed_by_upgrade(facts, rows, upgrade), *_read_for_unknown_version(facts, rows)]
    return worst_first(all_findings)


def _unexplained(rows: Sequence[SubscriptionRow], findings: Sequence[Finding]) -> list[SubscriptionRow]:
    """The subscriptions without a finding that explains why all messages match, or none.

    An error does, and what the subscription alone shows, without any message.
    """
    explained = {
        finding.key
        for finding in findings
        if finding.severity == ERROR or (finding.severity == WARN and not finding.of)
    }
    return [row for row in rows if row.key not in explained]


def _findings(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> tuple[list[Finding], Measured]:
    """The findings of subscriptions on their own and on messages, and their results on messages.

    A subscription that can match no message has no finding on messages.
    """
    facts.check_has_messages()
    findings = [
        *_without_topic(facts, rows),
        *refused_findings(map(facts.as_consumed, rows), facts.broker, facts.misread_settings),
    ]
    on_topics = [row for row in rows if row.topic in facts.topics and not is_retry_topic(row.topic)]
    measured = _on_messages(facts, on_topics)
    codes: defaultdict[GroupTopic, set[str]] = defaultdict(set)
    for finding in static_findings(rows):
        # An integer literal is fine if every message has an integer, and a property if messages have it. If not, the
        # findings "fails" and "unknown-property" say more.
        # Tags that messages have were meant as they are.
        result, _ = measured.get(finding.key, (None, 0))
        if result is None or not (finding.code in _SAID_BY_MESSAGES or (finding.code in ABOUT_TAGS and result.matched)):
            findings.append(finding)
        codes[finding.key].add(finding.code)
    matching = [row for row in on_topics if delivers(row) is not FALSE]
    findings += _unknown_properties(facts, matching, measured)
    for row, result, total in _results(matching, measured):
        # What NOT does not apply to is mostly an error.
        fails = () if "not-binds-tightly" in codes[row.key] else _fails(row, result, total)
        findings += [*fails, *_collides(row, result, total)]
    for row, result, total in _results(_unexplained(matching, findings), measured):
        findings += _matches_all(row, result, total)
    return findings, measured


def _results(
    rows: Sequence[SubscriptionRow], measured: Measured
) -> Iterator[tuple[SubscriptionRow, FilterOnMessages, int]]:
    """The subscriptions that were measured, each with its result and the number of messages."""
    return ((row, *measured[row.key]) for row in rows if row.key in measured)


def _without_topic(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> list[Finding]:
    findings = []
    for row in facts.without_messages(rows):
        text = f"no message of the log has this topic{did_you_mean(row.topic, facts.topics)}"
        findings.append(Finding(ERROR, *row.key, "topic-without-messages", text))
    return findings


def _unknown_properties(facts: BrokerFacts, rows: Sequence[SubscriptionRow], measured: Measured) -> Iterator[Finding]:
    """Properties that an expression names but no message of the topic has."""
    asked: defaultdict[str, set[str]] = defaultdict(set)
    names = [
        (row, named_properties(row.compiled.expression.syntax_tree))
        for row in rows
        if row.compiled.expression is not None
    ]
    for row, properties in names:
        asked[row.topic].update(properties)
    known = property_names(facts.warehouse, facts.name, asked)
    for row, properties in names:
        topic_names = known.get(row.topic)
        for name in properties:
            if topic_names is not None and name not in topic_names:
                text = f"no message has {name}{_instead(row, name, topic_names, measured)}"
                yield Finding(ERROR, *row.key, "unknown-property", text)


def _instead(row: SubscriptionRow, name: str, known: Collection[str], measured: Measured) -> str:
    """What to write instead of a property that no message has."""
    expression = row.compiled.expression
    if expression is None:
        return ""
    for each in unquoted_texts(expression.syntax_tree):
        if each.text.name == name and row.key in measured and name in measured[row.key][0].unquoted:
            return f": it is a value of {each.name}; write {each.correction}"
    return meant_by(name, expression, known)


def meant_by(name: str, expression: CompiledExpression, known: Collection[str]) -> str:
    """A hint at what was meant by a property that no message has. ``known``: those that messages have."""
    for each in unquoted_texts(expression.syntax_tree):
        if each.text.name == name and each.name in known:
            return f"; if it is a text, write {each.correction}"
    meant = misnamed(name)
    return f"; RocketMQ's property is {meant}" if meant is not None else did_you_mean(name, sorted(known))


def _on_messages(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> Measured:
    """The result of each filter on the newest messages of its topic."""
    by_topic: defaultdict[str, list[tuple[SubscriptionRow, MessageFilter]]] = defaultdict(list)
    for row in rows:
        row_filter = message_filter(row, rows, facts.broker)
        if row_filter is not None:
            by_topic[row.topic].append((row, row_filter))
    properties = {
        topic: sorted({name for _, row_filter in filters for name in _read_by(row_filter)})
        for topic, filters in by_topic.items()
    }
    measured = {}
    for topic, messages in newest_messages(facts.warehouse, facts.name, properties).items():
        filters = by_topic[topic]
        expressions = [row.compiled.expression for row, _ in filters]
        results = filters_on_messages([row_filter for _, row_filter in filters], expressions, messages)
        for (row, _), result in zip(filters, results, strict=True):
            measured[row.key] = (result, messages.count)
    return measured


def _read_by(row_filter: MessageFilter) -> Iterator[str]:
    for node in postorder([row_filter.expression, row_filter.failure, row_filter.client_tags]):
        yield from node.properties


def _fails(row: SubscriptionRow, result: FilterOnMessages, total: int) -> Iterator[Finding]:
    if result.failed:
        severity = ERROR if result.failed > total * FAILING_SHARE else WARN
        text = f"{_share(result.failed, total)} {'fails' if result.failed == 1 else 'fail'}"
        text = ": ".join([text, *result.remedies[:1]])
        yield Finding(severity, *row.key, "fails", text, result.failed, total)


def _collides(row: SubscriptionRow, result: FilterOnMessages, total: int) -> Iterator[Finding]:
    if result.collided:
        tags = ", ".join(tag or "(no tag)" for tag in dict.fromkeys(result.colliding_tags[:NAMED]))
        text = (
            f"shares a hash with {tags}: {_share(result.collided, total)} are returned by the broker for nothing, and "
            "dropped by the clients"
        )
        yield Finding(WARN, *row.key, "hash-collision", text, result.collided, total)


def _matches_all(row: SubscriptionRow, result: FilterOnMessages, total: int) -> Iterator[Finding]:
    expression = row.compiled.expression
    is_sql92 = not is_tag_type(row.expression_type)
    if is_sql92 and result.matched == total and expression and expression.predicate is not TRUE:
        every = "the only message matches" if total == 1 else f"all of the newest {total:,} messages match"
        text = f"{every}: is a filter needed?"
        yield Finding(INFO, *row.key, "matches-all", text, total, total)


def _share(messages: int, total: int) -> str:
    share = f"{messages / total:.0%}" if messages / total >= 0.01 else "under 1%"
    return f"{messages:,} of {counted(total, 'message')} ({share})"


def _never_matched(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> Iterator[Finding]:
    """Groups that scanned messages in the nights so far and received none."""
    counts = facts.sums(DELIVERY_STATS, ["consumer_group", "topic"], ["scanned", "passed_stage2", "delivered"])
    for row in rows:
        total = counts.get(row.key)
        if total is None or not total["scanned"] or total["delivered"] or total["passed_stage2"]:
            continue
        text = f"none of {counted(total['scanned'], 'message')} matched so far"
        yield Finding(WARN, *row.key, "never-matched", text, 0, total["scanned"])


def _dead_filters(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> Iterator[Finding]:
    """Filters of groups that left. The broker evaluates them on each message until it removes them."""
    broker = facts.broker
    if not broker.calculates_bit_maps:
        return
    dead = [row for row in rows if row.dead_time is not None and row.compiled.compile_error is None]
    since = min((row.dead_time for row in dead if row.dead_time is not None), default=None)
    if since is None:
        return
    where = [one_of("topic", {row.topic for row in dead}), within("store_timestamp", since)]
    stored = facts.rows(COMMITLOG, ["topic", "store_timestamp"], where)
    for row in dead:
        times = stored.filter(pc.equal(stored["topic"], row.topic))["store_timestamp"]
        later = int(pc.sum(pc.greater(times, row.dead_time)).as_py() or 0)
        text = (
            f"the group has left; the broker evaluated its expression on {counted(later, 'message')} since, for nobody"
        )
        yield Finding(INFO, *row.key, "dead-filter", text, later, later)


def _changed_by_upgrade(
    facts: BrokerFacts, rows: Sequence[SubscriptionRow], version: RocketMQVersion
) -> Iterator[Finding]:
    """Expressions that mean something else to a broker of another version, with what each group would gain or lose."""
    changed = []
    for row in rows:
        if not is_tag_type(row.expression_type) and not row.class_filter_mode:
            compiled = facts.expressions.compile(row.expression or "", version)
            then = compiled if isinstance(compiled, CompiledExpression) else None
            now = row.compiled.expression
            before = FALSE if now is None else now.predicate
            # A filter that a broker loads, and cannot compile, lets every message pass.
            after = TRUE if then is None else then.predicate
            if (now is None) is not (then is None) or (then is not None and before is not after):
                changed.append((row, And((after, Not(before))), And((before, Not(after))), then is None))
    names: defaultdict[str, set[str]] = defaultdict(set)
    for row, *differences, _ in changed:
        names[row.topic] |= {name for node in postorder(differences) for name in node.properties}
    on_topics = {topic: sorted(read) for topic, read in names.items() if topic in facts.topics}
    messages = newest_messages(facts.warehouse, facts.name, on_topics)
    for row, gains, losses, is_refused in changed:
        newest = messages.get(row.topic)
        bits = [] if newest is None else [newest.match([each])[0] for each in (gains, losses)]
        gained, lost = (int(np.bitwise_count(row_bits).sum()) for row_bits in bits) if bits else (0, 0)
        total = 0 if newest is None else newest.count
        does = "refuses it, and lets every message pass if it loads the filter" if is_refused else "reads it otherwise"
        text = f"RocketMQ {version} {does} (this broker: {facts.broker.rocketmq_version})"
        if total:
            text += f": of the newest {counted(total, 'message')}, the group would gain {gained:,} and lose {lost:,}"
        yield Finding(WARN, *row.key, "changes-on-upgrade", text, gained + lost, total)


def _read_for_unknown_version(facts: BrokerFacts, rows: Sequence[SubscriptionRow]) -> Iterator[Finding]:
    """Expressions with words that are operators or names, by the version of a broker that nothing shows."""
    if facts.last.version_is_shown:
        return
    for row in rows:
        if is_tag_type(row.expression_type) or row.class_filter_mode:
            continue
        words = text_search_words(row.expression or "")
        if words:
            taken = "operators" if facts.broker.version.has_text_searches else "names of properties"
            text = (
                f"{listed(words, NAMED)} read as {taken}, as a broker of {facts.broker.rocketmq_version} does: "
                f"operators since {TEXT_SEARCHES_SINCE}, names before. Nothing shows the version: give "
                "--rocketmq-version"
            )
            yield Finding(INFO, *row.key, "assumed-version", text)


def _inconsistent(facts: BrokerFacts, session: Session | None) -> Iterator[Finding]:
    for key, queues in facts.last.assumed_queues.items():
        yield Finding(WARN, *key, "assumed-queues", assumption(queues))
    for group in inconsistent_groups(facts, session):
        severity = ERROR if group.lost else WARN
        code = "seemingly-inconsistent" if group.seems else "inconsistent-clients"
        affected = group.lost + group.uncertain
        yield Finding(severity, group.consumer_group, group.topic, code, group.text, affected, affected)


def _acknowledged_late(facts: BrokerFacts) -> Iterator[Finding]:
    """Groups whose clients acknowledged messages of the last night after the invisible time of their pops."""
    if not facts.nights or POPS.name not in facts.last.tables:
        return
    names = ["consumer_group", "topic", "visible_at", "acknowledged_at"]
    rows = facts.recorded_pops(names, [one_of("run", [facts.nights[-1].run])])
    late_by = pc.subtract(rows["acknowledged_at"], rows["visible_at"]).fill_null(0).to_numpy()
    keys, number = group_numbers(rows, names[:2])
    popped, late = (np.bincount(each, minlength=len(keys)).tolist() for each in (number, number[late_by > 0]))
    latest = np.zeros(len(keys), np.int64)
    np.maximum.at(latest, number, late_by)
    for (group, topic), of, messages, most in zip(keys, popped, late, latest.tolist(), strict=True):
        if messages:
            late_pops = counted(messages, "pop was", "pops were")
            text = (
                f"of {of:,} in the last night, {late_pops} acknowledged after the invisible time, at most "
                f"{most / 1000:.1f} s later: the broker hands out such messages again. Give pops a longer invisible "
                "time, or renew it"
            )
            yield Finding(WARN, group, topic, "acknowledged-late", text, messages, of)


# Several brokers: what they have in common is one finding.


@frozen
class FindingsOfBrokers:
    """By the name of each broker, in order, its findings, the worst first."""

    by_broker: Mapping[str, Sequence[Finding]]

    @cached_property
    def _brokers(self) -> dict[Finding, list[str]]:
        brokers: dict[Finding, list[str]] = {}
        for name, findings in self.by_broker.items():
            for finding in findings:
                brokers.setdefault(finding, []).append(name)
        return brokers

    @property
    def all(self) -> list[Finding]:
        """Each finding once, the worst first."""
        return worst_first(self._brokers)

    def without(self, known: Collection[tuple[GroupTopic, str]]) -> FindingsOfBrokers:
        """Those that are not ``known`` by the key and the code."""
        return FindingsOfBrokers(
            {
                name: [finding for finding in findings if (finding.key, finding.code) not in known]
                for name, findings in self.by_broker.items()
            }
        )

    def only_on(self, finding: Finding) -> list[str]:
        """The brokers that have the finding, if not all of them do."""
        names = self._brokers[finding]
        return names if len(names) < len(self.by_broker) else []


def findings_of_brokers(
    brokers: Iterable[BrokerFacts], findings: Callable[[BrokerFacts], Sequence[Finding]]
) -> FindingsOfBrokers:
    """The ``findings`` of each broker. Clients subscribe at every broker, also where the topic has no messages."""
    opened = list(brokers)
    topics = {topic for facts in opened for topic in facts.topics}
    return FindingsOfBrokers(
        {
            facts.name: [
                finding
                for finding in findings(facts)
                if finding.code != "topic-without-messages" or finding.topic not in topics
            ]
            for facts in opened
        }
    )
