"""Whether a topic's filter bit map pays: what it costs when messages are stored, and what pulls save by it.

With the bit map, the broker evaluates every group's expression on each message as it is stored, dead groups included,
and writes the bits to the consume queue's extension. A pull then reads and evaluates only the messages whose bits are
set. Without it, each group's pulls read every message from the commit log, and evaluate its expression on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from filtering.bloom_filter import BloomFilter

EXTENSION_UNIT = 20
"""Bytes of an entry's extension without its bit map (ConsumeQueueExt.CqExtUnit)."""
ERROR_RATES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50)
LEAST_RECORD = 91
"""Bytes of a message record without body, topic and properties: a message log that does not tell sizes has less."""
LEAST_SAVED = 0.2
"""A bit map that saves fewer of the reads is not worth the evaluations."""


@dataclass(frozen=True)
class TopicLoad:
    """What groups with a registered SQL92 filter did on one topic.

    ``messages`` of ``message_bytes`` on average were stored. ``groups`` have filter data and live, ``dead_groups``
    have left; ``sent_with_pull`` groups bring their subscription with each pull, ``tag_groups`` use tags: neither uses
    a bit map. The groups' pulls scanned ``scanned`` entries, of which ``matched`` matched; ``false_positives`` passed
    the bit map only (None: the broker had none).
    """

    messages: int
    message_bytes: float
    groups: int
    dead_groups: int
    sent_with_pull: int
    tag_groups: int
    scanned: int
    matched: int
    false_positives: int | None


@dataclass(frozen=True)
class BitMapAdvice:
    """``use`` the bit map or not, and why. Bytes, reads and evaluations are of all messages of the load.

    ``false_positive_rate`` is what the broker's filter should have with as many groups matching a message, and
    ``measured_rate`` what it had (None: the broker had none); both are shares of the scanned entries that do not match.
    ``best`` has the parameters with the fewest bytes written and read, None where no group uses a bit map.
    """

    use: bool
    reason: str
    store_evaluations: int
    reads_without: int
    reads_with: int
    extension_bytes: int
    saved_bytes: int
    false_positive_rate: float
    measured_rate: float | None
    best: BloomFilter | None


def bit_map_advice(load: TopicLoad, bloom_filter: BloomFilter) -> BitMapAdvice:
    """The advice for a topic. ``bloom_filter``: as the broker is configured."""
    unmatched = load.scanned - load.matched
    rate = false_positive_rate(bloom_filter, _matching(load))
    measured = None
    if load.false_positives is not None and unmatched:
        measured = load.false_positives / unmatched
    now = _Balance.of(load, bloom_filter, rate if measured is None else measured)
    best = _best(load) if load.groups else None
    use, reason = _verdict(load, now)
    if best is not None and load.scanned and not use:
        then = _Balance.of(load, best, false_positive_rate(best, _matching(load)))
        if _verdict(load, then)[0]:
            reason += f"; with maxErrorRateOfBloomFilter={best.f} and expectConsumerNumUseFilter={best.n} it would pay"
    return BitMapAdvice(
        use=use,
        reason=reason,
        store_evaluations=load.messages * (load.groups + load.dead_groups),
        reads_without=load.scanned,
        reads_with=now.reads,
        extension_bytes=now.extension_bytes,
        saved_bytes=now.saved_bytes,
        false_positive_rate=rate,
        measured_rate=measured,
        best=best,
    )


def false_positive_rate(bloom_filter: BloomFilter, matching: float) -> float:
    """How likely all bits of a group that does not match are set, where ``matching`` groups match a message."""
    is_set: float = 1 - (1 - 1 / bloom_filter.m) ** (bloom_filter.k * matching)
    return is_set**bloom_filter.k


@dataclass(frozen=True)
class _Balance:
    reads: int
    extension_bytes: int
    saved_bytes: int

    @classmethod
    def of(cls, load: TopicLoad, bloom_filter: BloomFilter, rate: float) -> _Balance:
        """What a bit map costs and saves where so many of the entries that do not match pass it."""
        reads = load.matched + round(rate * (load.scanned - load.matched))
        extension = load.messages * (EXTENSION_UNIT + bloom_filter.m // 8)
        return cls(reads, extension, round((load.scanned - reads) * load.message_bytes))


def _verdict(load: TopicLoad, balance: _Balance) -> tuple[bool, str]:
    if not load.groups:
        others = [
            f"{count:,} {what}"
            for count, what in (
                (load.tag_groups, "use tags"),
                (load.sent_with_pull, "send their subscription with the pull"),
                (load.dead_groups, "have left"),
            )
            if count
        ]
        return False, f"no group would use it: {', '.join(others) or 'nobody subscribes by SQL92'}"
    if not load.scanned:
        return False, "its groups have pulled nothing so far"
    share = (load.scanned - balance.reads) / load.scanned
    if share < LEAST_SAVED:
        return False, f"it saves only {share:.0%} of the reads: most messages match, or pass by chance"
    if load.message_bytes >= LEAST_RECORD and balance.saved_bytes <= balance.extension_bytes:
        return False, f"it saves {share:.0%} of the reads, and its extension takes more bytes than those have"
    return True, f"it saves {share:.0%} of the reads"


def _matching(load: TopicLoad) -> float:
    """The groups that match a message, on average; dead ones count as the living."""
    if not load.groups or not load.scanned:
        return 0.0
    return load.matched / load.scanned * (load.groups + load.dead_groups)


def _best(load: TopicLoad) -> BloomFilter:
    """The filter with the fewest bytes written for a message and read for false positives of it."""
    unmatched_pulls = (load.scanned - load.matched) / max(1, load.messages)

    def cost(bloom_filter: BloomFilter) -> float:
        rate = false_positive_rate(bloom_filter, _matching(load))
        return bloom_filter.m / 8 + rate * unmatched_pulls * load.message_bytes

    return min(_candidates(load.groups + load.dead_groups), key=cost)


def _candidates(groups: int) -> Iterable[BloomFilter]:
    """Filters for up to so many groups."""
    sizes = sorted({max(1, groups * share // 8) for share in range(1, 9)})
    return (BloomFilter.create_by_fn(f, n) for f in ERROR_RATES for n in sizes)
