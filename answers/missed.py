"""What groups did not receive, each message with the reason that explain gives (:mod:`answers.explain`).

Explainer explains a message in half a millisecond. A group may miss millions, but most differ only in what no reason
names. So the messages of a topic are divided by all that their reasons depend on, and one of each part is explained:

1. What decides whether, when and how the group pulled them: their queue, the windows that cover them, …
   (Explainer.pull_columns). If it did not pull them, this is all. Of those that it pulled, the parts with the same
   filters are one again (Explainer.pull_key).
2. What the filters see of them: the tags, whether the group's bits are set, and the result of each leaf of the
   expression, which one match of all its leaves gives.
3. The values of the leaves that decide are part of the reason: for each distinct one it is written anew.

Messages of which more is known than what filters saw are explained one by one: those with a delivery that is none to
the listener, with a trace, that the group sent back, or that were stored while a subscription changed; and all of a
topic that the group pops, or whose clients broadcast or subscribe differently.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from answers.explain import Explainer, Explanation
from answers.export import MISSED_COLUMNS, Selection, batches_of
from answers.facts import BrokerFacts
from answers.messages import Delivery, StoredMessage, copies_of_each, not_taken_back, read, sent_back_by
from answers.pull_history import Pulled
from filtering.delivery import Outcome
from filtering.delivery.entries import among, positions_in
from filtering.delivery.message_filter import TAGS_PROPERTY
from filtering.explanation import deciding_expression
from filtering.matcher import Matcher, packed_bits
from filtering.matcher.column import Column
from filtering.names import is_lmq
from filtering.rocketmq_version import RocketMQVersion
from filtering.sql92 import CompiledExpression
from filtering.sql92.lowering import EvaluationOutcome, Lowering
from filtering.sql92.nodes import named_properties
from filtering.sql92.normal_form import PredicateBuilder
from filtering.sql92.reference import ExpressionPart, Result, node_evaluated, trace
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERIES
from schemas.delta.table import StoredFile
from schemas.delta.table_rows import files_that_may_hold, one_of, tuples, within
from schemas.messages.commitlog_rows import Messages, concat
from schemas.messages.stored_messages import PLACES, read_messages
from schemas.tables import CONSUMEQUEUE, CONSUMPTIONS

AT_ONCE = 1 << 16
"""Messages that are divided together."""
_ENTRY = ["commitlog_offset", "queue_id", "queue_offset", "store_timestamp", "tags_code", "filter_bit_map", "run"]
_RESULTS = Result.NULL, *(Result(outcome.value) for outcome in EvaluationOutcome)
"""Results by number. The outcomes exclude each other; without any, the result is NULL."""
_Numbers = npt.NDArray[np.int64]


def missed(
    brokers: Iterable[BrokerFacts], groups: Collection[str], topics: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """What groups missed on each broker, as rows with MISSED_COLUMNS, topic by topic, in the order of the log.

    ``topics``: only these, of those that a group ever subscribed to. A message that waits for its delivery time, or for
    its transaction, is in another topic until then.
    """
    for facts in brokers:
        for group in groups:
            explainer = Explainer(facts, [group])
            subscribed = {row.topic for row in facts.history_of_groups([group])}
            more_known = _more_known(facts, group)
            for topic in sorted(subscribed.intersection(topics or subscribed)):
                yield from _MissedOfTopic(facts, explainer, group, topic, more_known).batches()


def _more_known(facts: BrokerFacts, group: str) -> _Numbers:
    """The physical offsets of the messages that a client of the group traced, or sent back."""
    traced = facts.rows(CONSUMPTIONS, ["commitlog_offset"], [one_of("consumer_group", [group])])["commitlog_offset"]
    known = [pc.drop_null(traced).to_numpy(), sent_back_by(facts, group)]
    return np.unique(np.concatenate(known)).astype(np.int64)


class _MissedOfTopic:
    """The messages of a topic that a group did not receive. ``more_known``: see :func:`_more_known`."""

    def __init__(self, facts: BrokerFacts, explainer: Explainer, group: str, topic: str, more_known: _Numbers) -> None:
        self._facts = facts
        self._explainer = explainer
        self._group = group
        self._topic = topic
        self._received, self._others = _received(facts, group, topic)
        self._more_known = np.union1d(more_known, np.array([offset for _, offset in self._others], np.int64))
        self._properties = {TAGS_PROPERTY}
        for row in explainer.states(group, topic):
            of_filter_data = None if row.filter_data is None else row.filter_data.compiled
            for expression in (row.compiled.expression, of_filter_data):
                self._properties.update([] if expression is None else named_properties(expression.syntax_tree))

    def batches(self) -> Iterator[pa.RecordBatch]:
        for files in self._files():
            rows = self._facts.warehouse.rows(CONSUMEQUEUE, _ENTRY, [one_of("topic", [self._topic])], files)
            rows = rows.filter(pa.array(~among(rows["commitlog_offset"].to_numpy(), self._received)))
            if not len(rows):
                continue
            rows = rows.sort_by("commitlog_offset")
            messages = self._messages(rows["commitlog_offset"].to_numpy())
            if messages is None:
                continue
            at = positions_in(messages.commitlog_offset, rows["commitlog_offset"].to_numpy())
            is_stored = at >= 0  # maintenance may have removed some
            rows, at = rows.filter(pa.array(is_stored)), at[is_stored]
            for begin in range(0, len(rows), AT_ONCE):
                part = slice(begin, begin + AT_ONCE)
                properties = messages.properties(self._properties, at[part])
                yield self._batch(rows.slice(begin, AT_ONCE).combine_chunks(), properties)

    def _files(self) -> Iterator[list[StoredFile]]:
        """The files of entries in the order of the log, several small ones at once."""
        files = self._facts.warehouse.files(CONSUMEQUEUE, self._facts.name)
        part: list[StoredFile] = []
        for file in sorted(files, key=lambda file: file.least["commitlog_offset"]):
            part.append(file)
            if sum(each.rows for each in part) >= AT_ONCE:
                yield part
                part = []
        if part:
            yield part

    def _messages(self, offsets: _Numbers) -> Messages | None:
        """The stored messages between the first and the last of some physical offsets, ascending; None without any."""
        span = int(offsets[0]), int(offsets[-1]) + 1
        stored = self._facts.warehouse.files(COMMITLOG, self._facts.name)
        files = files_that_may_hold(stored, [within("commitlog_offset", *span)])
        topics = None if is_lmq(self._topic) else [self._topic]  # an LMQ has the messages of other topics
        storage, paths = self._facts.warehouse.log(COMMITLOG).storage, [file.path for file in files]
        parts = list(read_messages(storage, paths, span, topics, self._properties, PLACES))
        if not parts:
            return None
        messages = concat(parts)
        return messages.take(np.argsort(messages.commitlog_offset, kind="stable"))

    def _batch(self, entries: pa.Table, properties: Mapping[str, Column]) -> pa.RecordBatch:
        reasons = _Reasons(len(entries))
        if self._explainer.needs_each(self._group, self._topic):
            self._explain_each(entries, np.arange(len(entries)), reasons)
        else:
            columns, is_at_change = self._explainer.pull_columns(self._group, self._topic, entries)
            is_alone = is_at_change | np.isin(entries["commitlog_offset"].to_numpy(), self._more_known)
            self._explain_each(entries, np.flatnonzero(is_alone), reasons)
            self._explain_alike(entries, properties, _parts(columns, np.flatnonzero(~is_alone)), reasons)
        return reasons.batch(entries, self._facts.name, self._group, self._topic)

    def _explain_each(self, entries: pa.Table, rows: _Numbers, reasons: _Reasons) -> None:
        is_more_known = np.isin(entries["commitlog_offset"].to_numpy()[rows], self._more_known)
        messages = self._read(entries, rows)
        copies = iter(copies_of_each(self._facts, [messages[at] for at in np.flatnonzero(is_more_known)]))
        for row, message, is_more in zip(rows.tolist(), messages, is_more_known.tolist(), strict=True):
            explanation = self._explainer.explain(message, self._group, next(copies) if is_more else ())
            reasons.add(np.array([row]), explanation, explanation.summary)

    def _explain_alike(
        self,
        entries: pa.Table,
        properties: Mapping[str, Column],
        pulled_alike: Sequence[_Numbers],
        reasons: _Reasons,
    ) -> None:
        """``pulled_alike``: the rows of messages of which the same decides whether and how the group pulled them."""
        seen = _Seen(entries, properties)
        alike: list[tuple[_Numbers, list[_Leaf]]] = []
        pulls: dict[Hashable, tuple[Pulled, list[_Numbers]]] = {}
        for rows, first in zip(pulled_alike, self._firsts(entries, pulled_alike), strict=True):
            pull = self._explainer.pull(first, self._group)
            if pull is None:
                alike.append((rows, []))
            else:
                pulls.setdefault(self._explainer.pull_key(first, pull), (pull, []))[1].append(rows)
        for pull, parts in pulls.values():
            expression = deciding_expression(pull.row, (), pull.config, {})
            leaves = [] if expression is None else seen.leaves(expression)
            columns = [leaf.results for leaf in leaves] or seen.tags
            if pull.row.filter_data is not None:
                columns = [seen.bits_set(pull.row.filter_data.bit_pos), *columns]
            alike += [(part, leaves) for part in _parts(columns, np.sort(np.concatenate(parts)))]
        for (rows, leaves), first in zip(alike, self._firsts(entries, [rows for rows, _ in alike]), strict=True):
            explanation = self._explainer.explain(first, self._group)
            whole = explanation.trace
            if whole is None or not explanation.decision.detail:
                reasons.add(rows, explanation, explanation.summary)
                continue
            decide = [leaf for leaf, part in zip(leaves, whole.leaves(), strict=True) if part.decides]
            rest = explanation.summary.removeprefix(explanation.decision.reason)
            for same in _parts([leaf.values for leaf in decide], rows):
                decision = explanation.decision.with_leaves([leaf.part(same[0]) for leaf in decide])
                reasons.add(same, explanation, decision.reason + rest)

    def _firsts(self, entries: pa.Table, parts: Sequence[_Numbers]) -> list[StoredMessage]:
        return self._read(entries, np.array([rows[0] for rows in parts], np.int64))

    def _read(self, entries: pa.Table, rows: _Numbers) -> list[StoredMessage]:
        """The messages of some rows, in their order."""
        offsets = entries["commitlog_offset"].to_numpy()[rows].tolist()
        message_at = {message.commitlog_offset: message for message in read(self._facts, offsets, self._others)}
        messages = (message_at[offset] for offset in offsets)
        return [next((each for each in m.in_lmqs if each.topic == self._topic), m) for m in messages]


def _received(facts: BrokerFacts, group: str, topic: str) -> tuple[_Numbers, Mapping[tuple[str, int], list[Delivery]]]:
    """The physical offsets of the messages of a topic that a group received, ascending, and its other deliveries."""
    received = [np.empty(0, np.int64)]
    others: defaultdict[tuple[str, int], list[Delivery]] = defaultdict(list)
    names = ["commitlog_offset", "consumer_group", "outcome", "subscription_from", "available_at", "run"]
    selection = Selection(facts.name, [group], [topic], names)
    for batch in batches_of(facts.warehouse, DELIVERIES, selection):
        is_received = pc.equal(batch["outcome"], Outcome.DELIVERED)
        received.append(batch["commitlog_offset"].filter(is_received).to_numpy())
        for offset, *delivery in tuples(batch.filter(pc.invert(is_received)), *names):
            others[topic, offset].append(Delivery(*delivery))
    for deliveries in others.values():
        deliveries.sort(key=lambda delivery: delivery.available_at)
    return np.setdiff1d(np.concatenate(received), _taken_back(facts, group, topic, others)), others


def _taken_back(
    facts: BrokerFacts, group: str, topic: str, others: Mapping[tuple[str, int], list[Delivery]]
) -> _Numbers:
    """The physical offsets of messages whose deliveries a DENIED one of a later night takes back.

    ``others``: the deliveries of other outcomes.
    """
    denied = [at for (_, at), each in others.items() if any(row.outcome == Outcome.DENIED for row in each)]
    if not denied:
        return np.empty(0, np.int64)
    names = ["commitlog_offset", "consumer_group", "outcome", "subscription_from", "available_at", "run"]
    rows: defaultdict[int, list[Delivery]] = defaultdict(list)
    for batch in batches_of(facts.warehouse, DELIVERIES, Selection(facts.name, [group], [topic], names)):
        is_denied = pc.is_in(batch["commitlog_offset"], value_set=pa.array(denied, pa.int64()))
        for offset, *delivery in tuples(batch.filter(is_denied), *names):
            rows[offset].append(Delivery(*delivery))
    left = {at for at, each in rows.items() for row in not_taken_back(each) if row.outcome == Outcome.DELIVERED}
    return np.array(sorted(rows.keys() - left), np.int64)


class _Reasons:
    """What is said of each of ``count`` messages."""

    def __init__(self, count: int) -> None:
        self._number = np.full(count, -1, np.int64)
        self._said: list[tuple[str, str, str | None, int | None]] = []

    def add(self, rows: _Numbers, explanation: Explanation, reason: str) -> None:
        if explanation.outcome is not Outcome.DELIVERED:
            self._number[rows] = len(self._said)
            row = explanation.subscription
            since = None if row is None else row.valid_from
            self._said.append((str(explanation.outcome), reason, explanation.uncertain, since))

    def batch(self, entries: pa.Table, broker_name: str, group: str, topic: str) -> pa.RecordBatch:
        """The rows of the messages of ``entries`` of which something is said."""
        is_missed = self._number >= 0
        numbers = pa.array(self._number[is_missed])
        rows = entries.filter(pa.array(is_missed)).combine_chunks()
        said = zip(*self._said, strict=True) if self._said else [()] * 4
        arrays = {"broker_name": broker_name, "consumer_group": group, "topic": topic}
        columns = {name: pa.repeat(text, len(rows)) for name, text in arrays.items()}
        columns |= {name: rows[name].combine_chunks() for name in _ENTRY if name in MISSED_COLUMNS.names}
        for name, values in zip(("outcome", "reason", "uncertain", "subscription_from"), said, strict=True):
            columns[name] = pa.array(values, MISSED_COLUMNS.field(name).type).take(numbers)
        return pa.RecordBatch.from_arrays([columns[name] for name in MISSED_COLUMNS.names], schema=MISSED_COLUMNS)


# What the filters see of many messages.


class _Seen:
    """What filters see of the messages of ``entries``, as columns of numbers."""

    def __init__(self, entries: pa.Table, properties: Mapping[str, Column]) -> None:
        self._entries = entries
        self._properties = properties
        self._values: dict[tuple[str, ...], tuple[_Numbers, list[tuple[str | None, ...]]]] = {}
        self._leaves: dict[tuple[str, RocketMQVersion], list[_Leaf]] = {}

    @cached_property
    def tags(self) -> list[_Numbers]:
        return [self._entries["tags_code"].to_numpy(), self.values((TAGS_PROPERTY,))[0]]

    def bits_set(self, positions: Sequence[int]) -> _Numbers:
        """Whether all bits at some positions of the filter bit map are set, beside the length of the map."""
        maps = self._entries["filter_bit_map"].combine_chunks().cast(pa.binary())
        lengths = pc.binary_length(maps).fill_null(-1).to_numpy().astype(np.int64)
        bits_set = np.zeros(len(lengths), np.int64)
        for length in np.unique(lengths).tolist():
            if 8 * length > max(positions, default=-1):
                rows = np.flatnonzero(lengths == length)
                taken = maps.take(pa.array(rows))
                data = np.frombuffer(taken.buffers()[2], np.uint8)[: len(rows) * length].reshape(len(rows), length)
                bits_set[rows] = np.all([data[:, at // 8] >> (at % 8) & 1 for at in positions], axis=0)
        numbers: _Numbers = 2 * lengths + bits_set
        return numbers

    def values(self, names: tuple[str, ...]) -> tuple[_Numbers, list[tuple[str | None, ...]]]:
        """The number of each message's values of properties, and the distinct values: None where one is missing."""
        if names not in self._values:
            missing = pa.nulls(len(self._entries), pa.string())
            columns = map(self._properties.get, names)
            texts = [missing if column is None else column.text_of_each() for column in columns]
            encoded = [text.dictionary_encode(null_encoding="encode") for text in texts]
            parts = _parts(
                [each.indices.to_numpy().astype(np.int64) for each in encoded], np.arange(len(self._entries))
            )
            numbers = np.empty(len(self._entries), np.int64)
            for number, rows in enumerate(parts):
                numbers[rows] = number
            firsts = pa.array([rows[0] for rows in parts], pa.int64())
            self._values[names] = numbers, list(zip(*(text.take(firsts).to_pylist() for text in texts), strict=True))
        return self._values[names]

    def leaves(self, expression: CompiledExpression) -> list[_Leaf]:
        """The leaves of an expression, from left to right."""
        key = expression.expression, expression.version
        if key not in self._leaves:
            parts = list(trace(expression, {}).leaves())
            predicates = [
                Lowering(part.node, PredicateBuilder()).predicate(outcome)
                for part in parts
                for outcome in EvaluationOutcome
            ]
            rows = len(self._entries)
            matches = Matcher(predicates).match_columns(self._properties, rows).bits
            holds = packed_bits.unpack(matches, rows).reshape(len(parts), len(EvaluationOutcome), rows)
            results = np.einsum("lor,o->lr", holds, np.arange(1, len(_RESULTS)))
            self._leaves[key] = [
                _Leaf(part, *self.values(tuple(part.values)), leaf_results)
                for part, leaf_results in zip(parts, results, strict=True)
            ]
        return self._leaves[key]


class _Leaf:
    """A leaf of an expression, for many messages.

    ``values`` has the number of the values that it reads, one of the ``texts``, and ``results`` that of its result (in
    _RESULTS).
    """

    def __init__(
        self, leaf: ExpressionPart, values: _Numbers, texts: Sequence[tuple[str | None, ...]], results: _Numbers
    ) -> None:
        self._leaf = leaf
        self._texts = texts
        self.values = values
        self.results = results

    def part(self, row: int) -> ExpressionPart:
        """The leaf as it was evaluated on the message of a row."""
        values = dict(zip(self._leaf.values, self._texts[self.values[row]], strict=True))
        result, error = _RESULTS[self.results[row]], None
        if result is Result.ERROR:
            present = {name: text for name, text in values.items() if text is not None}
            _, error = node_evaluated(self._leaf.node, present)
        return replace(self._leaf, result=result, values=values, error=error)


def _parts(columns: Sequence[_Numbers], rows: _Numbers) -> list[_Numbers]:
    """Divides ``rows`` by the numbers that columns have there. Each part is in the order of ``rows``."""
    codes = np.zeros(len(rows), np.int64)
    for column in columns:
        distinct, numbers = np.unique(column[rows], return_inverse=True)
        if len(distinct) > 1:
            codes = np.unique(codes * len(distinct) + numbers.reshape(-1), return_inverse=True)[1].reshape(-1)
    order = np.argsort(codes, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(codes[order])) + 1) if len(rows) else []
