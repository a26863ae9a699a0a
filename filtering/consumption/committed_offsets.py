"""What the offsets that a group has committed when a night ends say about its pulls in that night."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from filtering.consumption.offsets import BrokerOffsets, OffsetsSoFar
from filtering.consumption.position import first_offsets
from filtering.consumption.stint import Stint
from filtering.consumption.timeline import Step
from filtering.delivery.pull_window import FOREVER
from filtering.subscriptions.events import ConsumeStart, GroupTopic


@dataclass
class CommittedOffsets:
    """The offsets of one group on one topic, and where it went on at other ones.

    ``moves``: when queues began again, or an operator set the group's offset: times (ms) and queue ids. ``lost_to``: by
    queue id, where the group went on because the broker had deleted what waited for it.
    """

    key: GroupTopic
    offsets_so_far: OffsetsSoFar
    broker_offsets: BrokerOffsets
    consume_from: ConsumeStart
    moves: list[tuple[int, int]] = field(default_factory=list)
    lost_to: dict[int, int] = field(default_factory=dict)

    def note_moves(self, steps: Iterable[Step]) -> None:
        """Sets ``moves`` from the steps of the night."""
        self.moves = [(step.at, queue_id) for step in steps for queue_id in step.moved_queues]

    @property
    def present(self) -> dict[int, int]:
        """By queue id, the offsets that the broker has."""
        return dict(self.broker_offsets.committed.get(self.key, {}))

    def uncommitted(self) -> dict[int, int]:
        """By queue id, where the group would begin in queues in which its clients have never committed an offset."""
        without_offset = self.broker_offsets.uncommitted(self.key)
        if not without_offset:
            return {}
        decided = self.offsets_so_far.of(self.key)
        known = {queue_id for _, queue_id in self.moves} | self.offsets_so_far.committed(self.key).keys()
        queue_ids = [each for each in without_offset if each not in known]
        first = first_offsets(self.key[1], queue_ids, self.consume_from, self.broker_offsets)
        return {each: max(first[each], decided.get(each, 0)) for each in queue_ids if first[each] < FOREVER}

    def uncommitted_at(self, stopped_at: int | None) -> dict[int, int]:
        """:meth:`uncommitted` of a group that stopped in the night (ms); empty if the offsets may be older."""
        is_later = stopped_at is not None and (self.broker_offsets.committed_at or 0) >= stopped_at
        return self.uncommitted() if is_later else {}

    def limit(self, stint: Stint, until: int) -> dict[int, int]:
        """Ends the windows of queues in which the group was behind ``until`` (ms). Returns its offsets there.

        If the group moves to another offset of a queue later, the committed one says nothing about the time before.
        """
        if not self.present:
            return {}
        decided = self.offsets_so_far.of(self.key) | self.lost_to
        committed = self.uncommitted() | self.present
        found = stint.offsets_behind(self.key[1], committed, decided, self.broker_offsets, until)
        moved_later = {queue_id for at, queue_id in self.moves if at >= until}
        limits = {queue_id: offset for queue_id, offset in found.items() if queue_id not in moved_later}
        stint.limit(limits)
        return limits
