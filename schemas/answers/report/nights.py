"""The nights that a report shows, each with its totals over all groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from filtering.subscriptions.events import GroupTopic
from schemas.answers.facts import BrokerFacts
from schemas.answers.filter_kinds import FilterKinds
from schemas.answers.report.group_counts import Counts, total
from schemas.commitlog import COMMITLOG
from schemas.errors import UsageError
from schemas.quarantine import QUARANTINE
from schemas.run_ledger import LedgerEntry, unreplaced_runs
from schemas.time_text import time_text

NIGHTS = 30
"""Nights that a report shows without ``--since``."""
MOST_NIGHTS = 90
NAMED = 5


@dataclass(frozen=True)
class StageCounts:
    """How the scanned entries ended: each of ``scanned`` is in exactly one of the other fields.

    ``stopped_by_either``: by the tags code or the filter bit map, of groups that filtered by both in the night.
    ``read`` entries passed the first filter, so that the broker read the message; ``sent`` also passed the second.
    """

    scanned: int
    stopped_by_tags_code: int
    stopped_by_bit_map: int
    stopped_by_either: int
    stopped_by_expression: int
    dropped_by_client: int
    dropped_by_hook: int
    delivered: int

    @property
    def stopped_on_entry(self) -> int:
        return self.stopped_by_tags_code + self.stopped_by_bit_map + self.stopped_by_either

    @property
    def read(self) -> int:
        return self.scanned - self.stopped_on_entry

    @property
    def sent(self) -> int:
        return self.read - self.stopped_by_expression


@dataclass(frozen=True)
class ReportedNight:
    """One night of a report. ``ended_at`` is in ms. The log gained ``messages`` and ``log_bytes``; None: unknown.

    ``totals`` are the counts of all groups together.
    """

    run: str
    ended_at: int
    messages: int
    log_bytes: int | None
    quarantined: int
    stages: StageCounts
    totals: Counts

    @property
    def false_positives(self) -> int:
        """Entries of messages that do not match that the filter bit map passed."""
        return self.totals["bit_map_false_positives"]

    @property
    def judged_by_bit_map(self) -> int:
        """Entries of messages that do not match. A perfect filter bit map would stop all of them."""
        return self.stages.stopped_by_bit_map + self.false_positives


def nights_with_deliveries(facts: BrokerFacts) -> Sequence[LedgerEntry]:
    """The nights that have delivery statistics, in order. Raises UsageError if there are none."""
    found = facts.counted_nights
    if not found:
        why = "run nightly or deliver first"
        if facts.nights:
            why = "no group subscribes to a topic with messages; give nightly --subscriptions"
        raise UsageError(f"{facts.warehouse.location} has no deliveries of {facts.name}: {why}")
    return found


def chosen_nights(nights: Sequence[LedgerEntry], since: int | None) -> list[LedgerEntry]:
    """The nights that ended at or after an instant (ms), at most MOST_NIGHTS. None: the last NIGHTS.

    Raises UsageError if no night ended so late.
    """
    if since is None:
        return list(nights[-NIGHTS:])
    found = [entry for entry in nights if (entry.as_of or 0) >= since]
    if not found:
        raise UsageError(
            f"no night ended at {time_text(since)} or later; the last one ended at {time_text(nights[-1].as_of or 0)}"
        )
    return found[-MOST_NIGHTS:]


def compared_night(nights: Sequence[LedgerEntry], name: str | None) -> LedgerEntry | None:
    """The night that the last one is compared with. Without a name, the one before it; None if it is the first.

    ``name``: the beginning of a run's name, or of the time at which the night ended. Raises UsageError if it fits no
    earlier night, or several.
    """
    earlier = nights[:-1]
    if name is None:
        return earlier[-1] if earlier else None
    if not earlier:
        raise UsageError(f"there is no earlier night to compare with: {nights[-1].run} is the only one")
    text = name.replace("T", " ")
    found = [entry for entry in earlier if entry.run.startswith(name) or time_text(entry.as_of or 0).startswith(text)]
    if len(found) == 1:
        return found[0]
    named = ", ".join(entry.run for entry in (found or earlier)[-NAMED:])
    if found:
        raise UsageError(f"--compare {name} is the beginning of {len(found)} nights: give one of {named}")
    raise UsageError(f"--compare {name} is not an earlier night; the last ones are {named}")


def night_rows(
    facts: BrokerFacts, entries: Sequence[LedgerEntry], by_run: Mapping[str, Mapping[GroupTopic, Counts]]
) -> list[ReportedNight]:
    """The nights of ``entries``, with the counts of their groups."""
    counts = facts.rows(QUARANTINE, ["run"])["run"].value_counts().to_pylist()
    quarantined = _sum_by_night(facts, {count["values"]: count["counts"] for count in counts})
    messages = _sum_by_night(facts, {entry.run: entry.rows.get(COMMITLOG.name, 0) for entry in facts.entries})
    log_bytes = _log_bytes(facts)
    kinds = FilterKinds(facts)
    nights = []
    for entry in entries:
        totals = total(by_run[entry.run].values())
        stages = _stages(kinds, entry.run, by_run[entry.run], totals)
        run = entry.run
        nights.append(
            ReportedNight(run, entry.as_of or 0, messages[run], log_bytes[run], quarantined[run], stages, totals)
        )
    return nights


def _sum_by_night(facts: BrokerFacts, by_run: Mapping[str, int]) -> Counter[str]:
    """By the run of a night, the sum of numbers of its own run and of those that prepared it.

    Numbers of runs after the last night, and of replaced nights, are left out.
    """
    sums: Counter[str] = Counter()
    waiting = 0
    for entry in unreplaced_runs(facts.entries):
        waiting += by_run.get(entry.run, 0)
        if entry.delivers:
            sums[entry.run], waiting = waiting, 0
    return sums


def _stages(kinds: FilterKinds, run: str, counts: Mapping[GroupTopic, Counts], totals: Counts) -> StageCounts:
    stopped: Counter[bool | None] = Counter()
    for key, each in counts.items():
        stopped[kinds.used_sql92(key, run)] += each["scanned"] - each["passed_stage1"]
    return StageCounts(
        totals["scanned"],
        stopped[False],
        stopped[True],
        stopped[None],
        totals["passed_stage1"] - totals["passed_stage2"],
        totals["client_drops"],
        totals["dropped_by_hook"],
        totals["delivered"],
    )


def _log_bytes(facts: BrokerFacts) -> dict[str, int | None]:
    """By the run of a night, the bytes that it added to the log, from the cut if it found the log cut."""
    added: dict[str, int | None] = {}
    start: int | None = None
    for entry in unreplaced_runs(facts.entries):
        cut = entry.cut or 0
        start = cut or (entry.log_start if start is None else start)
        if entry.delivers:
            end = entry.ingested_to
            added[entry.run] = end - start if start is not None and end is not None and start <= end else None
            start = end
    return added
