"""Reads files of subscriptions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from filtering.subscriptions.events import SubscriptionEvents, in_order
from filtering.subscriptions.sources import is_consumer_filter, parse_subscriptions


@dataclass(frozen=True)
class SubscriptionFile:
    """The events of a file, and the SHA-256 ``digest`` of its bytes.

    ``filters_only``: the file is a consumerFilter.json, which has only SQL92 filters.
    """

    name: str
    digest: str
    events: SubscriptionEvents
    filters_only: bool


def read_subscriptions(name: str, content: bytes) -> SubscriptionFile:
    """Parses the content of a subscription file, in any of its formats."""
    text = content.decode("utf-8", "replace")
    return SubscriptionFile(
        name, hashlib.sha256(content).hexdigest(), parse_subscriptions(text), is_consumer_filter(text)
    )


def combine(files: Sequence[SubscriptionFile] | None) -> SubscriptionFile | None:
    """Combines several files into one, a snapshot if all of them are; None without files."""
    if not files:
        return None
    if len(files) == 1:
        return files[0]
    events = SubscriptionEvents(
        in_order(event for file in files for event in file.events.events),
        tuple(line for file in files for line in file.events.rejected),
        all(file.events.is_snapshot for file in files),
    )
    digest = hashlib.sha256("".join(file.digest for file in files).encode()).hexdigest()
    return SubscriptionFile(files[0].name, digest, events, all(file.filters_only for file in files))
