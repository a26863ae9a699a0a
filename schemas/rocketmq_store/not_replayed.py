"""Finds in a broker's store what shows that it filters messages in ways that mqsieve does not replay."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from dataclasses import asdict, replace

from filtering.counted import listed
from filtering.frozen import frozen
from filtering.subscriptions.events import BROADCASTING, GroupTopic
from schemas.rocketmq_store.config_files import (
    TOPICS,
    ConfigFileError,
    broadcasting_groups,
    config_databases,
    database_in_force,
    fields,
    json_files,
    read_document,
    request_modes,
)
from schemas.rocketmq_store.queue_files import database_index
from schemas.rocketmq_store.rocksdb import DatabaseError
from schemas.storage import Storage

OTHER_STORAGES = {
    "config/tieredStoreMetadata.json": "messages that the broker reads from tiered storage, without filter bit map",
}
"""Files that only a broker with another storage writes, and what such a broker does otherwise.

Source: tieredstore's DefaultMetadataStore.
"""

TOPIC_ATTRIBUTES = {
    ("cleanup.policy", "COMPACTION"): "topics that the broker compacts, and whose messages it returns without a filter",
    ("queue.type", "BatchCQ"): "topics whose queues have one entry for a batch of messages",
}
"""Attributes in config/topics.json (TopicAttributes), and what the broker does otherwise."""
NAMED = 3


@frozen
class NotReplayed:
    """What a broker does otherwise.

    ``broadcasting``: groups and topics of which files of subscriptions say that they broadcast, without naming their
    clients; ``has_offsets``: those of which the broker notes the least offset of their clients. ``others``: the rest,
    one text each.
    """

    others: tuple[str, ...] = ()
    broadcasting: tuple[GroupTopic, ...] = ()
    has_offsets: tuple[GroupTopic, ...] = ()

    @classmethod
    def in_store(cls, storage: Storage) -> NotReplayed:
        """What the files of a store show."""
        others = [*_configurations(storage), *_queues(storage)]
        others += [text for path, text in OTHER_STORAGES.items() if storage.has_file(path)]
        for (name, value), text in TOPIC_ATTRIBUTES.items():
            if with_attribute := sorted(_topics_with(storage, name, value)):
                others.append(f"{text}: {listed(with_attribute, NAMED)}")
        try:
            request_modes(storage)
        except ConfigFileError as error:
            others.append(f"groups that consume by POP, if there are any: {error}")
        try:
            has_offsets = broadcasting_groups(storage)
        except ConfigFileError as error:
            has_offsets = []
            others.append(f"groups that broadcast, if there are any: {error}")
        return cls(tuple(others), has_offsets=tuple(has_offsets))

    def with_broadcasting(self, groups: Iterable[GroupTopic]) -> NotReplayed:
        """This, with groups of which files of subscriptions say that they broadcast."""
        return replace(self, broadcasting=tuple(dict.fromkeys(groups)))

    def texts(self, replayed: Container[GroupTopic] = ()) -> list[str]:
        """What is not replayed, besides consumption by POP. ``replayed``: groups that broadcast, and are replayed."""
        groups = dict.fromkeys((*self.has_offsets, *self.broadcasting))
        named = [f"{group} on {topic}" for group, topic in groups if (group, topic) not in replayed]
        return [*self.others, *([f"{BROADCASTING}, of {listed(named, NAMED)}"] if named else [])]

    @classmethod
    def from_text(cls, text: str) -> NotReplayed:
        """The reverse of :meth:`text`."""
        values = json.loads(text)
        broadcasting, has_offsets = (
            tuple((group, topic) for group, topic in values.get(name, ())) for name in ("broadcasting", "has_offsets")
        )
        return cls(tuple(values["others"]), broadcasting, has_offsets)

    @property
    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


def _configurations(storage: Storage) -> Iterator[str]:
    """Configurations that were not read: those in a database that needs a package, and those that are older."""
    if not (databases := config_databases(storage)):
        return
    files, database = json_files(storage), database_in_force(storage)
    if database is not None and database.problem is not None:
        beside = f"; not read either, since it may be older: {listed(files, NAMED)}" if files else ""
        yield f"offsets of consumers and topics: {database.problem}{beside}"
        return
    place = None if database is None else database.place
    older = [*(files if place else ()), *(folder for folder in databases if folder != place)]
    if older:
        yield f"older configurations: {listed(older, NAMED)} (the broker has newer ones in {place or files[0]})"


def _queues(storage: Storage) -> Iterator[str]:
    try:
        database_index(storage)
    except DatabaseError as error:
        yield f"which messages the consume queues still have: {error}"


def _topics_with(storage: Storage, name: str, value: str) -> Iterator[str]:
    """The topics with an attribute; none if topics.json is damaged."""
    try:
        document = read_document(storage, TOPICS) or {}
    except ConfigFileError:
        return
    for topic, config in fields(document.get("topicConfigTable")):
        attributes = config.get("attributes") if isinstance(config, dict) else None
        if isinstance(attributes, dict) and attributes.get(name) == value:
            yield topic
