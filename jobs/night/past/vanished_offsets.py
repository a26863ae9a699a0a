"""Committed offsets that earlier snapshots had and a later one has not, as its ledger entry records them.

Tables have a committed offset when it changes. What a snapshot lacks did not change: its copy may be incomplete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from filtering.consumption.offsets import Offsets, TopicOffsets
from filtering.subscriptions.events import GroupTopic

_ALL = "all"
"""Instead of a list: the snapshot has no committed offsets."""


def vanished_text(before: Mapping[str, TopicOffsets], now: Mapping[GroupTopic, Offsets]) -> str:
    """The committed offsets that were known ``before``, by topic, and are not in a snapshot, as JSON."""
    if not now:
        return json.dumps(_ALL)
    vanished = []
    for topic, offsets in before.items():
        for group, row in offsets.groups.items():
            present = now.get((group, topic), {})
            known = (offsets.queue_ids[i] for i in np.flatnonzero(offsets.committed[row] >= 0).tolist())
            vanished += [(topic, group, queue_id) for queue_id in known if queue_id not in present]
    return json.dumps(vanished)


def without_vanished(known: Mapping[GroupTopic, Offsets], text: str) -> dict[GroupTopic, Offsets]:
    """The committed offsets of a snapshot: those that are ``known`` from it and from earlier ones, without ``text``."""
    listed = json.loads(text)
    if listed == _ALL:
        return {}
    vanished = {(group, topic, queue_id) for topic, group, queue_id in listed}
    found = {
        (group, topic): {queue_id: at for queue_id, at in queues.items() if (group, topic, queue_id) not in vanished}
        for (group, topic), queues in known.items()
    }
    return {key: queues for key, queues in found.items() if queues}
