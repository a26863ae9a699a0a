"""Which messages one subscription of a group decides, and when the group could first pull them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from filtering.delivery.message_filter import MessageFilter
from filtering.predicate import Predicate

BEGINNING = -(2**63)
FOREVER = 2**63 - 1

OffsetRange = tuple[int, int]
"""Queue offsets, the second exclusive."""


@dataclass(frozen=True)
class PullWindow:
    """The messages of a topic that ``message_filter`` decides for its group.

    They were stored from ``stored_from`` up to but not including ``stored_to`` (ms). ``offsets`` narrows them by
    queue id; a queue that is not listed has all of its entries, or with ``only_listed`` none. ``subscription_from``
    is the valid_from of the subscription. ``available_at`` (ms) is when the group could first pull them; None: when
    each was stored.
    """

    message_filter: MessageFilter
    subscription_from: int
    stored_from: int = BEGINNING
    stored_to: int = FOREVER
    available_at: int | None = None
    offsets: Mapping[int, OffsetRange] = field(default_factory=dict)
    only_listed: bool = False

    @property
    def consumer_group(self) -> str:
        return self.message_filter.consumer_group

    @property
    def topic(self) -> str:
        return self.message_filter.topic


@dataclass(frozen=True)
class UncertainChange:
    """An SQL92 subscription of a consuming group changed: which expression met the last messages is not known.

    A pull that is held at the broker keeps messages that did not match ``before`` for up to five seconds, and may
    then meet ``after``. Messages stored in [``stored_from``, ``stored_to``) that match only one of the two are
    counted as uncertain.
    """

    consumer_group: str
    topic: str
    before: Predicate
    after: Predicate
    stored_from: int
    stored_to: int
