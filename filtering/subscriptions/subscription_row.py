"""The state of a group's subscription to a topic, and what its expression compiles to."""

from __future__ import annotations

from dataclasses import replace

from filtering.consumer_filter_manager import ConsumerFilterData, compile_filter
from filtering.frozen import frozen
from filtering.names import retry_topics
from filtering.rocketmq_version import NEWEST, RocketMQVersion
from filtering.sql92 import CompiledExpression, Expressions
from filtering.subscription_data import SUB_ALL, TAG, Filter, build_subscription_data, is_tag_type
from filtering.subscriptions.events import ConsumeMode, GroupTopic
from filtering.time_spans import FOREVER


@frozen(slots=True)
class CompiledSubscription:
    """A TAG subscription has ``tags_set`` and ``code_set``, both sorted; an SQL92 subscription has ``expression``."""

    tags_set: tuple[str, ...] | None = None
    code_set: tuple[int, ...] | None = None
    expression: CompiledExpression | None = None
    compile_error: str | None = None


def compile_subscription(
    topic: str,
    expression: str | None,
    expression_type: str,
    expressions: Expressions,
    version: RocketMQVersion = NEWEST,
) -> CompiledSubscription:
    """Compiles a subscription. It never raises: a subscription that does not compile has only a ``compile_error``."""
    if is_tag_type(expression_type):
        if not expression_type:
            # FilterAPI.build parses tags only if the type is TAG or null; an empty type leaves them without codes.
            return CompiledSubscription((), ())
        try:
            tags = build_subscription_data(topic, expression)
        except ValueError as error:
            return CompiledSubscription(compile_error=str(error))
        return CompiledSubscription(tuple(sorted(tags.tags_set)), tuple(sorted(tags.code_set)))
    compiled = compile_filter(expression_type, expression, expressions, version)
    if isinstance(compiled, str):
        return CompiledSubscription(compile_error=compiled)
    return CompiledSubscription(expression=compiled)


def compile_client_filter(topic: str, filter: Filter, expressions: Expressions) -> CompiledSubscription:
    """Compiles what a client sends with its requests, for the tags that it checks. A filter class takes every message.

    An expression is compiled as by the newest broker: a client does not evaluate it.
    """
    expression, expression_type, is_filter_class = filter
    if is_filter_class:
        return CompiledSubscription()
    return compile_subscription(topic, expression, expression_type, expressions)


@frozen(slots=True)
class State:
    """What holds for a group and topic in [``valid_from``, ``valid_to``) (ms); None: it still does."""

    consumer_group: str
    topic: str
    valid_from: int
    valid_to: int | None

    @property
    def key(self) -> GroupTopic:
        return self.consumer_group, self.topic

    @property
    def end(self) -> int:
        """``valid_to``, or FOREVER."""
        return FOREVER if self.valid_to is None else self.valid_to

    def holds_at(self, instant: int) -> bool:
        """Whether it holds at an instant (ms)."""
        return self.valid_from <= instant < self.end


@frozen(slots=True)
class SubscriptionRow(State):
    """The state of a group's subscription to a topic, for messages stored while it is in force.

    ``expression`` is the one that the broker uses for pulls: the one sent with the pull (``sent_with_pull``, without
    the bit map), else the registered one. If the group has left (not ``registered``), it is its last one. A TAG
    subscription in ``class_filter_mode`` has the name of a class as its expression, and no tags. ``is_consuming``: the
    group is online, whether the broker accepts its pulls or not. With the ``mode`` POP, each request brings this
    subscription.

    ``filter_data`` is the ConsumerFilterData in the broker's registry, or None. It sets bits in the bit maps. It
    remains if the subscription changes to TAG, and after its death until it is cleaned.
    """

    expression: str | None
    expression_type: str
    sub_version: int
    registered: bool
    sent_with_pull: bool
    is_consuming: bool
    class_filter_mode: bool
    compiled: CompiledSubscription
    filter_data: ConsumerFilterData | None
    mode: ConsumeMode = ConsumeMode.PULL

    @property
    def pops(self) -> bool:
        return self.mode is ConsumeMode.POP

    @property
    def filter(self) -> Filter:
        """The filter, to compare it with that of another state or subscription."""
        return self.expression or "", self.expression_type, self.class_filter_mode

    @property
    def filter_text(self) -> str:
        """The type and the expression on one line, as in ``SQL92 price > 5``."""
        return f"{self.expression_type or TAG} {' '.join((self.expression or SUB_ALL).split())}"

    @property
    def takes_every_message(self) -> bool:
        """Whether the broker and the client filter nothing (ExpressionMessageFilter, FilterAPI)."""
        is_any_tag = is_tag_type(self.expression_type) and self.expression in (None, "", SUB_ALL)
        return self.class_filter_mode or is_any_tag

    @property
    def tags_set(self) -> tuple[str, ...] | None:
        """The tags, sorted, of a TAG subscription."""
        return self.compiled.tags_set

    @property
    def code_set(self) -> tuple[int, ...] | None:
        """The tags' hash codes, sorted, of a TAG subscription."""
        return self.compiled.code_set

    @property
    def compile_error(self) -> str | None:
        """Why the broker refuses the expression."""
        return self.compiled.compile_error

    @property
    def filter_expression(self) -> str | None:
        return self.filter_data.expression if self.filter_data else None

    @property
    def filter_version(self) -> int | None:
        return self.filter_data.client_version if self.filter_data else None

    @property
    def born_time(self) -> int | None:
        """The born time of the ConsumerFilterData in ms."""
        return self.filter_data.born_time if self.filter_data else None

    @property
    def dead_time(self) -> int | None:
        """The dead time of the ConsumerFilterData in ms; None while it is alive."""
        return self.filter_data.dead_time if self.filter_data else None

    @property
    def bit_pos(self) -> tuple[int, ...] | None:
        """The positions of the group and topic in the filter bit map."""
        return self.filter_data.bit_pos if self.filter_data else None

    @property
    def bit_num(self) -> int | None:
        """The number of bits of the filter bit map."""
        return self.filter_data.bit_num if self.filter_data else None

    def of_retry_topic(self, topic: str) -> SubscriptionRow:
        """The state of the group's subscription to a retry topic of pops.

        A pop filters it by this subscription. A client that pulls from queues that the broker assigns subscribes to the
        first of the retry topics by itself, with the tag ``*`` (RebalanceImpl.updateMessageQueueAssignment).
        """
        if self.pops:
            return replace(self, topic=topic)
        return replace(
            self, topic=topic, expression=SUB_ALL, expression_type=TAG, sent_with_pull=False, class_filter_mode=False,
            is_consuming=self.is_consuming and topic == retry_topics(*self.key)[0],
            compiled=CompiledSubscription((), ()), filter_data=None,
        )  # fmt: skip
