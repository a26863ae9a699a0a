"""Reads files in the config folder of a broker's store: offsets of consumers, and topics."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from filtering.java.numbers import LONG_MAX, parse_int
from filtering.java.strings import has_half_a_pair
from filtering.subscriptions.events import GroupTopic
from schemas.errors import UsageError
from schemas.storage import Storage

LARGEST = 256 << 20
"""Bytes of the largest file that is read."""
MOST_QUEUES = 1 << 16
"""The greatest number of queues of a topic; a greater one in topics.json is damaged."""
BROKER_TOPIC = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Every broker has a topic of this name and its own (TopicConfigManager)."""
BROADCAST = "@broadcast"
"""Ends the name by which a broker saves the least offset of a broadcasting group's clients (BroadcastOffsetManager)."""
_UNQUOTED_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|[0-9]+(?=\s*:)')


def contents(storage: Storage, path: str) -> Iterator[tuple[str, bytes]]:
    """The names and contents of a file and of its backup, without those that are missing or empty.

    A broker reads the backup if the file is missing, empty or damaged (ConfigManager.load). It saves a file by deleting
    the old one and renaming the new one, so a copy of a running broker may lack it.
    """
    for name in (path, f"{path}.bak"):
        if content := storage.read(name):
            yield name, content


class ConfigFileError(UsageError):
    """A file of the config folder that cannot be read; the message names it."""


def read_consumer_offsets(storage: Storage) -> tuple[dict[GroupTopic, dict[int, int]], int | None] | None:
    """config/consumerOffset.json: committed offsets by (group, topic) and queue id, and when they were saved (ms).

    If the file is missing or damaged, its backup counts. None if there is neither. Raises ConfigFileError.
    """
    document = read_json(storage, "config/consumerOffset.json")
    return None if document is None else _consumer_offsets(document)


def parse_consumer_offsets(content: bytes, name: str) -> tuple[dict[GroupTopic, dict[int, int]], int | None]:
    """Parses a file with offsets, called ``name``, as :func:`read_consumer_offsets`. Raises ConfigFileError."""
    document = _parse_json(content, name)
    if not isinstance(document.get("offsetTable"), dict):
        raise ConfigFileError(f"{name} has no offsetTable: give the broker's consumerOffset.json")
    offsets, saved_at = _consumer_offsets(document)
    if any(queues for _, _, queues in _groups(document)) and not offsets:
        raise ConfigFileError(f"{name} has no offset that can be read: give the broker's consumerOffset.json")
    return offsets, saved_at


def _consumer_offsets(document: dict[str, Any]) -> tuple[dict[GroupTopic, dict[int, int]], int | None]:
    committed: defaultdict[GroupTopic, dict[int, int]] = defaultdict(dict)
    for topic, group, queues in _groups(document):
        is_readable = group and isinstance(queues, dict) and not has_half_a_pair(f"{topic}@{group}")
        for queue_id, offset in queues.items() if is_readable else ():
            number = parse_int(queue_id)
            if number is not None and number >= 0 and _is_long(offset):
                committed[group, topic][number] = offset
    version = document.get("dataVersion")
    saved = version.get("timestamp") if isinstance(version, dict) else None
    return dict(committed), saved if _is_long(saved) else None


def _groups(document: dict[str, Any], suffix: str = "") -> Iterator[tuple[str, str, Any]]:
    """The topics and groups of an offset table, with their queues: those that do not broadcast, or with BROADCAST."""
    table = document.get("offsetTable")
    for name, queues in table.items() if isinstance(table, dict) else ():
        topic, _, group = name.partition("@")
        if group.endswith(BROADCAST) == bool(suffix):
            yield topic, group.removesuffix(suffix), queues


def broadcasting_groups(storage: Storage) -> Sequence[GroupTopic]:
    """The groups and topics of config/consumerOffset.json whose clients broadcast. Raises ConfigFileError."""
    document = read_json(storage, "config/consumerOffset.json") or {}
    found = ((group, topic) for topic, group, _ in _groups(document, BROADCAST))
    return sorted(key for key in found if not has_half_a_pair("@".join(key)))


def _is_long(value: Any) -> bool:
    """Whether a value is a number from 0 to the greatest of 64 bits. To the broker, a negative offset is none."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LONG_MAX


def read_topics(storage: Storage) -> dict[str, int]:
    """config/topics.json, or its backup: the number of queues by topic, at most MOST_QUEUES; empty without a file.

    Raises ConfigFileError.
    """
    document = read_json(storage, "config/topics.json")
    table = document.get("topicConfigTable") if document else None
    topics = {}
    for name, topic in table.items() if isinstance(table, dict) else ():
        queues = topic.get("readQueueNums") if isinstance(topic, dict) else None
        if isinstance(queues, int) and not has_half_a_pair(name):
            topics[name] = min(queues, MOST_QUEUES)
    return topics


def broker_name(topics: dict[str, int]) -> str | None:
    """The name of the broker that has these topics; None if they do not show it."""
    names = [topic.removeprefix(BROKER_TOPIC) for topic in topics if topic.startswith(BROKER_TOPIC)]
    return names[0] if len(names) == 1 else None


def read_json(storage: Storage, path: str) -> dict[str, Any] | None:
    """A JSON object of the config folder, or its backup; None if there is neither. Raises ConfigFileError."""
    damaged: ConfigFileError | None = None
    for name, content in contents(storage, path):
        try:
            return _parse_json(content, f"{storage.root}/{name}")
        except ConfigFileError as error:
            damaged = damaged or error
    if damaged is not None:
        raise damaged
    return None


def _parse_json(content: bytes, name: str) -> dict[str, Any]:
    if len(content) > LARGEST:
        raise ConfigFileError(f"{name} is larger than {LARGEST:,} bytes")
    try:
        # The broker writes queue ids as keys without quotes.
        document = json.loads(_UNQUOTED_KEY.sub(_quoted, content.decode("utf-8", "replace")))
    except (ValueError, RecursionError) as error:
        raise ConfigFileError(f"{name} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigFileError(f"{name} is not a JSON object")
    return document


def _quoted(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else f'"{match[0]}"'
