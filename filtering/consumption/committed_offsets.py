"""What the offsets that a group has committed when a night ends say about its pulls in that night."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from filtering.consumption.group_start import GroupStart
from filtering.consumption.offsets import SAVE_DELAY
from filtering.consumption.stint import Stint
from filtering.delivery.pull_window import FOREVER


@dataclass
class GroupCommits:
    """The offsets of the group and topic of ``start``, and where it went on at other ones.

    ``moves`` are those of the night's Timeline. ``lost_to``: by queue id, where the group went on because the broker
    had deleted what waited for it.
    """

    start: GroupStart
    moves: Sequence[tuple[int, int]]
    lost_to: dict[int, int] = field(default_factory=dict)

    @property
    def present(self) -> dict[int, int]:
        """By queue id, the offsets that the broker has."""
        return dict(self.start.broker_offsets.committed.get(self.start.key, {}))

    def present_at(self, stopped_at: int | None) -> dict[int, int]:
        """:attr:`present` of a group that stopped in the night (ms); empty if they may be older than its stop."""
        may_be_older = stopped_at is not None and self.start.broker_offsets.may_lack(stopped_at)
        return {} if may_be_older else self.present

    def uncommitted(self) -> dict[int, int]:
        """By queue id, where the group would begin in queues in which its clients have never committed an offset."""
        key, so_far = self.start.key, self.start.offsets_so_far
        without_offset = self.start.broker_offsets.uncommitted(key)
        if not without_offset:
            return {}
        decided = so_far.of(key)
        known = {queue_id for _, queue_id in self.moves} | so_far.committed(key).keys()
        queue_ids = [each for each in without_offset if each not in known]
        first = self.start.offsets(queue_ids)
        return {each: max(first[each], decided.get(each, 0)) for each in queue_ids if first[each] < FOREVER}

    def uncommitted_at(self, stopped_at: int | None) -> dict[int, int]:
        """:meth:`uncommitted` of a group that stopped in the night (ms); empty if the offsets may be older."""
        offsets = self.start.broker_offsets
        saved_at = (offsets.committed_at or 0) - (SAVE_DELAY if offsets.is_estimated else 0)
        is_later = stopped_at is not None and saved_at >= stopped_at
        return self.uncommitted() if is_later else {}

    def limit(self, stint: Stint, until: int) -> dict[int, int]:
        """Ends the windows of queues in which the group was behind ``until`` (ms). Returns its offsets there.

        If the group moves to another offset of a queue later, the committed one says nothing about the time before.
        """
        if not self.present:
            return {}
        key, broker_offsets = self.start.key, self.start.broker_offsets
        decided = self.start.offsets_so_far.of(key) | self.lost_to
        committed = self.uncommitted() | self.present
        found = stint.offsets_behind(key[1], committed, decided, broker_offsets, until)
        moved_later = {queue_id for at, queue_id in self.moves if at >= until}
        limits = {queue_id: offset for queue_id, offset in found.items() if queue_id not in moved_later}
        stint.limit(limits)
        return limits
