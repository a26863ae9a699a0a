"""The answer to "why did this message not arrive?": finds the messages, and explains each to each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from filtering.counted import counted, listed
from filtering.explanation.journey import is_copy
from filtering.subscriptions.events import BROADCASTING
from schemas.answers.explanation.explain import Explainer
from schemas.answers.explanation.explanation import Explanation
from schemas.answers.explanation.found_messages import FoundMessage, copies_of, find, find_at, kept_offsets
from schemas.answers.facts import NO_SUBSCRIPTIONS, BrokerFacts
from schemas.errors import UsageError, did_you_mean
from schemas.time_text import time_text

NAMED = 3


@dataclass(frozen=True)
class Why:
    """The explanations of some messages. ``messages`` does not include their copies.

    ``group``: the only group to explain; None: all. ``unique_key``: ``found`` has all messages with this key.
    """

    facts: BrokerFacts
    messages: Sequence[FoundMessage]
    group: str | None
    found: Sequence[FoundMessage] = ()
    unique_key: str | None = None

    @cached_property
    def _explainer(self) -> Explainer:
        return Explainer(self.facts, [self.group] if self.group is not None else None)

    def __iter__(self) -> Iterator[Explanation]:
        """An explanation for each message and group; without a group, for all that ever subscribed to the topic."""
        for message in self.messages:
            copies = self.copies(message)
            groups = [self.group] if self.group is not None else self._explainer.groups_of(message, copies)
            for group in groups:
                yield self._explainer.explain(message, group, copies)

    @property
    def nobody(self) -> str:
        """Why there is no explanation for any group."""
        topics = {message.topic for message in self.messages}
        broadcasting = sorted({group for group, topic in self.facts.not_replayed.broadcasting if topic in topics})
        if broadcasting:
            return f"not replayed: {listed(broadcasting, NAMED)}, {BROADCASTING}"
        return "no group ever subscribed to the topic" + ("" if self.facts.groups else f": {NO_SUBSCRIPTIONS}")

    def copies(self, message: FoundMessage) -> list[FoundMessage]:
        """The message's copies in the schedule topic, retry topics and the dead-letter queue."""
        if message.uniq_key is not None and message.uniq_key == self.unique_key:
            return [copy for copy in self.found if copy.uniq_key == self.unique_key and copy is not message]
        return copies_of(self.facts, message)


def why(facts: BrokerFacts, text: str, group: str | None = None) -> Why:
    """``text`` is a msgId, a unique key, or one of KEYS. Raises UsageError if no message has it."""
    found = _find(facts, text)
    if not found:
        raise _no_message([facts], text)
    _check_group(facts, group)
    return Why(facts, _originals(found, group), group, found, text)


def why_on_brokers(brokers: Sequence[BrokerFacts], text: str, group: str | None = None) -> list[Why]:
    """As :func:`why`, for each of several brokers that has such a message and knows the group."""
    if len(brokers) == 1:
        return [why(brokers[0], text, group)]
    on_brokers = [(facts, found) for facts in brokers if (found := _find(facts, text))]
    if not on_brokers:
        raise _no_message(brokers, text)
    knowing = [(facts, found) for facts, found in on_brokers if group is None or _knows(facts, group)]
    if not knowing:
        names = ", ".join(facts.name for facts, _ in on_brokers)
        known = {name for facts in brokers for name in facts.groups}
        hint = "" if group in known else did_you_mean(group or "", sorted(known))
        raise UsageError(f"the message is on {names}, where {group} never subscribed{hint}")
    sent = {message.uniq_key for _, found in knowing for message in found if not is_copy(message.topic)} - {None}
    # A client that cannot send a message back to its broker sends it to another one.
    originals = [
        [message for message in _originals(found, group) if not (is_copy(message.topic) and message.uniq_key in sent)]
        for _, found in knowing
    ]
    return [
        Why(facts, messages, group, found, text)
        for (facts, found), messages in zip(knowing, originals, strict=True)
        if messages
    ]


def _find(facts: BrokerFacts, text: str) -> list[FoundMessage]:
    if not isinstance(text, str):
        raise TypeError(f"a message is named by a text, not by {type(text).__name__}")
    if not text:
        raise UsageError("the message is an empty text: give a msgId, a unique key or a key")
    facts.check_has_messages()
    return find(facts, text)


def _no_message(brokers: Sequence[BrokerFacts], text: str) -> UsageError:
    oldest = min(brokers, key=lambda facts: facts.as_of)
    whose = f" of {oldest.name}" if len(brokers) > 1 else ""
    ended = f"; the last night{whose} ended at {time_text(oldest.as_of)}" if oldest.as_of else ""
    return UsageError(f"{oldest.warehouse.location} has no message with the id or key {text}{ended}")


def only_broker_with(
    brokers: Sequence[BrokerFacts], topic: str, queue_id: int, queue_offset: int
) -> BrokerFacts | None:
    """The broker with a message at a place of a queue; None if there are none or several, and it must be named.

    One that is alone is the broker in any case.
    """
    if len(brokers) == 1:
        return brokers[0]
    found = [facts for facts in brokers if find_at(facts, topic, queue_id, queue_offset)]
    return found[0] if len(found) == 1 else None


def why_at(facts: BrokerFacts, topic: str, queue_id: int, queue_offset: int, group: str | None = None) -> Why:
    """The message at a place of a queue. Raises UsageError if there is none."""
    facts.check_has_messages()
    found = find_at(facts, topic, queue_id, queue_offset)
    if not found:
        facts.check_topic(topic)
        place = f"{topic} {queue_id}/{queue_offset}"
        raise UsageError(f"{facts.warehouse.location} has no message at {place}: {_places(facts, topic, queue_id)}")
    _check_group(facts, group)
    return Why(facts, found, group)


def _places(facts: BrokerFacts, topic: str, queue_id: int) -> str:
    """Where a queue, or else a topic, has messages."""
    kept = kept_offsets(facts, topic)
    if not kept:
        return f"there is none of this topic{did_you_mean(topic, facts.topics)}"
    if queue_id not in kept:
        return f"the topic has them in {counted(len(kept), 'queue')}, {min(kept)} to {max(kept)}"
    first, last = kept[queue_id]
    return f"the queue has those from offset {first} to {last}"


def _check_group(facts: BrokerFacts, group: str | None) -> None:
    """Raises UsageError if the group never subscribed."""
    if group is not None and not _knows(facts, group):
        facts.subscriptions_of(group)


def _knows(facts: BrokerFacts, group: str) -> bool:
    """Whether the group ever subscribed."""
    return any(event.group == group for event in facts.events)


def _originals(found: Sequence[FoundMessage], group: str | None) -> list[FoundMessage]:
    """Of messages with one unique key, the one that was sent; the others are copies that the broker made.

    If it is not there any more, the first copy for the group.
    """
    by_key: dict[str, list[FoundMessage]] = {}
    for message in found:
        by_key.setdefault(message.uniq_key or message.msg_id or message.place, []).append(message)
    originals = []
    for same in by_key.values():
        sent = [message for message in same if not is_copy(message.topic)]
        of_group = [message for message in same if group is not None and message.sent_back_by == group]
        originals += sent or of_group[:1] or same[:1]
    return originals
