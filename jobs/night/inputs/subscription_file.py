"""Reads files of subscriptions."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filtering.subscriptions.events import InvalidSubscriptionEvent, SubscriptionEvents
from filtering.subscriptions.sources import is_consumer_filter, parse_subscriptions
from schemas.errors import UsageError
from schemas.shell_command import PROGRAM


@dataclass(frozen=True)
class SubscriptionFile:
    """The events of a file or of several, and a SHA-256 ``digest`` of the bytes.

    ``rejected``: the rejected entries of each file, by its name. ``filters_only``: all entries are of
    consumerFilter.json files, which have only SQL92 filters. ``is_in_store``: it is the broker's own list.
    """

    digest: str
    events: SubscriptionEvents
    rejected: Mapping[str, Sequence[InvalidSubscriptionEvent]]
    filters_only: bool
    is_in_store: bool = False

    @property
    def rejected_lines(self) -> list[str]:
        """The rejected entries, with their file, line and reason."""
        return [
            f"{name}, line {entry.line}: {entry.reason}" for name, found in self.rejected.items() for entry in found
        ]


def read_subscriptions(name: str, content: bytes) -> SubscriptionFile:
    """Parses the content of a subscription file, in any of its formats."""
    text = content.decode("utf-8", "surrogateescape")
    events = parse_subscriptions(text)
    digest = hashlib.sha256(content).hexdigest()
    return SubscriptionFile(digest, events, {name: events.rejected}, is_consumer_filter(text))


def read_file(path: Path) -> SubscriptionFile:
    """Reads a file that a user names. Raises UsageError if no line of it can be used."""
    file = read_subscriptions(path.name, path.read_bytes())
    if file.events.rejected and not file.events.events:
        first = file.events.rejected[0]
        raise UsageError(
            f"{path} has no subscription (line {first.line}: {first.reason}); conf/subscriptions.example.yaml is an "
            f"example, and {PROGRAM} subscriptions converts what RocketMQ's tools print"
        )
    return file


def combine(files: Sequence[SubscriptionFile]) -> SubscriptionFile | None:
    """Combines several files into one, a snapshot if all that have entries are; None without files."""
    if not files:
        return None
    if len(files) == 1:
        return files[0]
    filled = [file for file in files if file.events.entries]
    events = SubscriptionEvents(
        tuple(event for file in files for event in file.events.entries),
        tuple(line for file in files for line in file.events.rejected),
        bool(filled) and all(file.events.is_snapshot for file in filled),
        tuple(dict.fromkeys(pair for file in files for pair in file.events.broadcasting)),
    )
    rejected: defaultdict[str, list[InvalidSubscriptionEvent]] = defaultdict(list)
    for file in files:
        for name, entries in file.rejected.items():
            rejected[name] += entries
    digest = hashlib.sha256("".join(file.digest for file in files).encode()).hexdigest()
    return SubscriptionFile(digest, events, rejected, all(file.filters_only for file in filled))
