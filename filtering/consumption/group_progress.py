"""How far a group came on a topic in a night."""

from __future__ import annotations

from dataclasses import dataclass, field

from filtering.subscriptions.events import GroupTopic


@dataclass
class GroupNight:
    """The progress of one group on one topic in a night.

    ``told_to``: by queue id, the offset up to which deliveries are decided. Other queues are decided to their end, or
    if the group stopped at ``stopped_at`` (ms), up to what was stored before. ``lost``: by queue id, the number of
    entries that the broker deleted before the group could pull them. ``behind``: the group pulls but does not keep up.
    """

    key: GroupTopic
    is_consuming: bool = False
    stopped_at: int | None = None
    told_to: dict[int, int] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)
    behind: bool = False
