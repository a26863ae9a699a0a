"""What a broker's configuration says of groups that pop: which do, how often they try, and which consume in order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from filtering.subscriptions.events import GroupTopic

RETRY_MAX_TIMES = 16
"""How often a group's message is redelivered, if its configuration does not say (SubscriptionGroupConfig)."""


@dataclass(frozen=True)
class PopGroups:
    """From config/messageRequestMode.json and config/subscriptionGroup.json.

    ``popping``: remoting groups that were switched to POP, by topic. ``retry_max_times``: by group, where it is not
    RETRY_MAX_TIMES. ``in_order``: groups with consumeMessageOrderly, whose pops the broker does not write down.
    """

    popping: frozenset[GroupTopic] = frozenset()
    retry_max_times: Mapping[str, int] = field(default_factory=dict)
    in_order: frozenset[str] = frozenset()

    def most_attempts(self, consumer_group: str) -> int:
        """How often the group's clients get a message. The proxy moves it to the dead letter queue at the next pop.

        A remoting client gives up after its own maxReconsumeTimes, which no store has; it counts as the same.
        """
        return self.retry_max_times.get(consumer_group, RETRY_MAX_TIMES) + 1

    @property
    def text(self) -> str:
        """As JSON."""
        modes, in_order = sorted(self.popping), sorted(self.in_order)
        return json.dumps({"popping": modes, "retry_max_times": dict(self.retry_max_times), "in_order": in_order})

    @classmethod
    def of_text(cls, text: str) -> PopGroups:
        """The reverse of ``text``."""
        values = json.loads(text)
        popping = frozenset((group, topic) for group, topic in values["popping"])
        return cls(popping, values["retry_max_times"], frozenset(values["in_order"]))
