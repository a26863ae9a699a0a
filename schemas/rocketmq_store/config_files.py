"""Reads the config folder of a broker's store: offsets of consumers, topics, groups that pop, and what shows the
broker's version.

They are in JSON files, or in RocksDB databases (:data:`PLACES`).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from filtering.frozen import frozen
from filtering.java import LONG_MAX, has_half_a_pair, parse_int
from filtering.names import LMQ_QUEUE_ID
from filtering.pops.modes import RETRY_MAX_TIMES, PopGroups
from filtering.rocketmq_version import (
    ShownVersions,
    before_text_searches,
    since_5,
    since_databases,
    since_text_searches,
    up_to_4,
)
from filtering.subscriptions.events import ConsumeMode, GroupTopic
from schemas.errors import UsageError
from schemas.rocketmq_store.rocksdb import (
    DEFAULT_FAMILY,
    Database,
    DatabaseError,
    PackageMissing,
    has_database,
    listing,
)
from schemas.storage import Storage

OFFSETS, TOPICS, GROUPS = "config/consumerOffset.json", "config/topics.json", "config/subscriptionGroup.json"
"""The files that a broker may keep in databases instead."""
REQUEST_MODES = "config/messageRequestMode.json"
ORDER_INFO = "config/consumerOrderInfo.json"
ABORT_BEFORE = "abort.bak"
"""What the file ``abort`` held when the broker started: the killed process, or nothing (MixAll.string2File)."""
LMQ_OFFSETS = "config/lmqConsumerOffset.json"
"""Where a broker with enableLmq saves the offsets instead, of all groups and topics (LmqConsumerOffsetManager)."""
VERSION_2, UNIFIED, SEPARATE = "config/rdb", "config/metadata", "config/consumerOffsets"
SEPARATE_FOLDERS = {OFFSETS: SEPARATE, TOPICS: "config/topics", GROUPS: "config/subscriptionGroups"}
PLACES = {VERSION_2: (VERSION_2,), UNIFIED: (UNIFIED,), SEPARATE: tuple(SEPARATE_FOLDERS.values())}
"""The databases in which a broker may keep these files, in the order in which they count if they are equally new.

VERSION_2: with ``configManagerVersion=v2`` (ConfigStorage). SEPARATE: with ``storeType=defaultRocksDB``, one for each
file (RocksDBConfigManager). UNIFIED: the same in one database, with ``useSingleRocksDBForAllConfigs``.
"""
LARGEST = 256 << 20
"""Bytes of the largest file that is read."""
MOST_QUEUES = 1 << 16
"""The greatest number of queues of a topic; a greater one in topics.json is damaged."""
BROKER_TOPIC = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Every broker has a topic of this name and its own (TopicConfigManager)."""
BROADCAST = "@broadcast"
"""Ends the name by which a broker saves the least offset of a broadcasting group's clients (BroadcastOffsetManager)."""
_DATABASES = (*chain.from_iterable(PLACES.values()), "consumequeue", "consumequeue_rocksdb")
"""Folders that may be RocksDB databases, which only brokers from 5.2.0 on have."""
_DATA_VERSION = re.compile(rb'"dataVersion"\s*:\s*\{')
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

    If the file is missing or damaged, its backup counts. None if there is neither.
    Raises ConfigFileError, DatabaseError.
    """
    document = read_document(storage, OFFSETS)
    return None if document is None else _consumer_offsets(document)


def offsets_file(storage: Storage) -> str:
    """OFFSETS or LMQ_OFFSETS: the one that the broker saved last, by its data version, or else by the file's time."""
    if not any(contents(storage, LMQ_OFFSETS)):
        return OFFSETS
    times = {info.path: info.mtime_ns or 0 for info in storage.files("config")}

    def saved(path: str) -> tuple[int, int]:
        try:
            at = _saved_at(read_json(storage, path) or {}) or 0
        except ConfigFileError:
            at = 0
        return at, times.get(path, 0)

    return max((LMQ_OFFSETS, OFFSETS), key=saved)


def parse_consumer_offsets(content: bytes, name: str) -> tuple[dict[GroupTopic, dict[int, int]], int | None]:
    """Parses a file with offsets, called ``name``, as :func:`read_consumer_offsets`. Raises ConfigFileError."""
    document = _parse_json(content, name)
    if not isinstance(document.get("offsetTable"), dict):
        raise ConfigFileError(f"{name} has no offsetTable")
    offsets, saved_at = _consumer_offsets(document)
    if any(queues for _, _, queues in _groups(document)) and not offsets:
        raise ConfigFileError(f"{name} has no offset that can be read")
    return offsets, saved_at


def _consumer_offsets(document: dict[str, Any]) -> tuple[dict[GroupTopic, dict[int, int]], int | None]:
    committed: defaultdict[GroupTopic, dict[int, int]] = defaultdict(dict)
    for topic, group, queues in _groups(document):
        is_readable = group and isinstance(queues, dict) and not has_half_a_pair(f"{topic}@{group}")
        for queue_id, offset in queues.items() if is_readable else ():
            number = parse_int(queue_id)
            if number is not None and number >= 0 and _is_long(offset):
                committed[group, topic][number] = offset
    return dict(committed), _saved_at(document)


def saves_time_of_offsets(storage: Storage) -> bool:
    """Whether the file of the offsets has a data version, or there is no such file. Brokers of 4.x write none."""
    content = next((content for _, content in contents(storage, offsets_file(storage))), b"")
    return not content or bool(_DATA_VERSION.search(content))


def _saved_at(document: dict[str, Any]) -> int | None:
    """When a document got its data version (ms); None if it has none."""
    version = document.get("dataVersion")
    saved = version.get("timestamp") if isinstance(version, dict) else None
    return saved if _is_long(saved) else None


def _groups(document: dict[str, Any], suffix: str = "") -> Iterator[tuple[str, str, Any]]:
    """The topics and groups of an offset table, with their queues: those that do not broadcast, or with BROADCAST.

    An LMQ's group has one offset there, in a table of its own.
    """
    table, lmq_table = document.get("offsetTable"), document.get("lmqOffsetTable")
    items = [*(table.items() if isinstance(table, dict) else ())]
    items += [
        (name, {str(LMQ_QUEUE_ID): offset})
        for name, offset in (lmq_table.items() if isinstance(lmq_table, dict) else ())
    ]
    for name, queues in items:
        topic, _, group = name.partition("@")
        if group.endswith(BROADCAST) == bool(suffix):
            yield topic, group.removesuffix(suffix), queues


def broadcasting_groups(storage: Storage) -> Sequence[GroupTopic]:
    """The groups and topics of config/consumerOffset.json whose clients broadcast. Raises as read_consumer_offsets."""
    document = read_document(storage, OFFSETS) or {}
    keys = ((group, topic) for topic, group, _ in _groups(document, BROADCAST))
    return sorted(key for key in keys if not has_half_a_pair("@".join(key)))


def versions_in_store(storage: Storage) -> ShownVersions | None:
    """What the files of a store show of the broker's version; None if they show nothing.

    A broker writes its offsets every 5 s, but its groups only when one is new or changed, so those may be older than
    the broker. A broker with RocksDB databases does not write all of these files.
    """
    for folder in _DATABASES:
        if has_database(storage, folder):
            return since_databases(f"5.2 or newer: {folder} is a database")
    saved_in = offsets_file(storage)
    offsets, name = next((content for _, content in contents(storage, saved_in)), b""), saved_in.rpartition("/")[2]
    groups = _entries_of(storage, GROUPS, "subscriptionGroupTable")
    topics = _entries_of(storage, TOPICS, "topicConfigTable")
    if any("attributes" in group for group in groups):
        return since_text_searches("5.1.3 or newer: subscriptionGroup.json has attributes")
    if _DATA_VERSION.search(offsets):
        if any("consumeTimeoutMinute" in group for group in groups):
            return before_text_searches("5.0 or 5.1, before 5.1.3: subscriptionGroup.json has no attributes")
        return since_5(f"5.x: {name} has a dataVersion")
    if any("attributes" in topic for topic in topics) or any("consumeTimeoutMinute" in group for group in groups):
        return since_5("5.x: topics.json or subscriptionGroup.json has fields of it")
    if b'"offsetTable"' in offsets:
        return up_to_4(f"4.x: {name} has no dataVersion")
    if topics and groups:
        return up_to_4("4.x: topics.json has no attributes")
    return None


def _entries_of(storage: Storage, path: str, table: str) -> list[dict[str, Any]]:
    """The entries of a table in a file; none if the file is damaged."""
    try:
        entries = (read_json(storage, path) or {}).get(table)
    except ConfigFileError:
        return []
    return [entry for entry in (entries.values() if isinstance(entries, dict) else ()) if isinstance(entry, dict)]


def _is_long(value: Any) -> bool:
    """Whether a value is a number from 0 to the greatest of 64 bits. To the broker, a negative offset is none."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LONG_MAX


def read_topics(storage: Storage) -> dict[str, int]:
    """config/topics.json, or its backup: the number of queues by topic, at most MOST_QUEUES; empty without a file.

    Raises ConfigFileError, DatabaseError.
    """
    document = read_document(storage, TOPICS)
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


def read_pop_groups(storage: Storage, before: PopGroups) -> PopGroups:
    """The groups that pop. What a file says that is missing or damaged is as ``before``, in the last snapshot."""
    groups = replace(before, handed_out=_handed_out_in_order(storage), restarted_at=_restarted_at(storage))
    with suppress(ConfigFileError):
        if modes := request_modes(storage):
            to_pop, to_pull = (
                frozenset(key for key, mode in modes.items() if mode == wanted)
                for wanted in (ConsumeMode.POP, ConsumeMode.PULL)
            )
            groups = replace(groups, set_to_pop=to_pop, set_to_pull=to_pull)
    with suppress(ConfigFileError, DatabaseError):
        table = (read_document(storage, GROUPS) or {}).get("subscriptionGroupTable")
        if isinstance(table, dict):
            configs = {group: config for group, config in table.items() if isinstance(config, dict)}
            times = {group: config.get("retryMaxTimes") for group, config in configs.items()}
            groups = replace(
                groups,
                retry_max_times={
                    group: most for group, most in times.items() if isinstance(most, int) and most != RETRY_MAX_TIMES
                },
                in_order=frozenset(
                    group for group, config in configs.items() if config.get("consumeMessageOrderly") is True
                ),
                configs_are_known=True,
            )
    return groups


def _restarted_at(storage: Storage) -> int | None:
    """``restarted_at`` of PopGroups. A copy that does not keep the times of files has a later one."""
    (abort,) = storage.file_system.get_file_info([ABORT_BEFORE])
    return abort.mtime_ns // 1_000_000 if abort.size else None


def _handed_out_in_order(storage: Storage) -> dict[GroupTopic, dict[int, int]]:
    """``handed_out`` of PopGroups.

    The offsets of a queue are those of its last pop: the first one, and the differences of the others to it
    (ConsumerOrderInfoManager.OrderInfo.buildOffsetList).
    """
    try:
        document = read_json(storage, ORDER_INFO) or {}
    except ConfigFileError:
        return {}
    handed_out: defaultdict[GroupTopic, dict[int, int]] = defaultdict(dict)
    for name, queues in fields(document.get("table")):
        topic, _, group = name.partition("@")
        for queue_id, last_pop in fields(queues):
            number, offsets = parse_int(queue_id), dict(fields(last_pop)).get("o")
            if number is None or number < 0 or not isinstance(offsets, list) or not all(map(_is_long, offsets)):
                continue
            if offsets:
                handed_out[group, topic][number] = offsets[0] + max(offsets[1:], default=0) + 1
    return dict(handed_out)


def request_modes(storage: Storage) -> dict[GroupTopic, object]:
    """By group and topic, the mode that clients are told to use (MessageRequestModeManager). Raises ConfigFileError."""
    document = read_json(storage, REQUEST_MODES) or {}
    return {
        (group, topic): mode.get("mode")
        for topic, groups in fields(document.get("messageRequestModeMap"))
        for group, mode in fields(groups)
        if isinstance(mode, dict)
    }


def fields(value: object) -> Iterator[tuple[str, object]]:
    """The fields of a JSON object; none of another value."""
    yield from value.items() if isinstance(value, dict) else ()


def read_document(storage: Storage, path: str) -> dict[str, Any] | None:
    """The content of OFFSETS, TOPICS or GROUPS, from where the broker keeps it now; None if it has none.

    Raises ConfigFileError, DatabaseError.
    """
    database = database_in_force(storage)
    if database is None:
        return read_json(storage, offsets_file(storage) if path == OFFSETS else path)
    return database.documents.get(path)


@frozen
class ConfigDatabase:
    """A database of PLACES. ``documents``: OFFSETS, TOPICS and GROUPS, as the JSON files have them.

    ``changed_at``: the last change (ms; 0: unknown). ``problem``: what to do to read it; None if it was read.
    """

    place: str
    changed_at: int = 0
    documents: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    problem: str | None = None


def database_in_force(storage: Storage) -> ConfigDatabase | None:
    """The database in which the broker keeps its configurations now; None if it keeps them in JSON files.

    A broker that was moved from one to the other leaves the old ones where they are. The newest changed last: a broker
    that moves into a database changes that at once. Raises DatabaseError.
    """
    if not (places := config_databases(storage)):
        return None
    return _newest(storage, tuple(places), listing(storage, "config"))


def config_databases(storage: Storage) -> list[str]:
    """Which of PLACES there are."""
    names = {f"config/{name}" for name in storage.child("config").names()}
    there = {folder for folder in chain(*PLACES.values()) if folder in names and has_database(storage, folder)}
    return [place for place, folders in PLACES.items() if not there.isdisjoint(folders)]


def json_files(storage: Storage) -> list[str]:
    """Which of the files that a broker may keep in databases are there, or their backups."""
    return [path for path in (offsets_file(storage), TOPICS, GROUPS) if any(contents(storage, path))]


@lru_cache(maxsize=4)
def _newest(storage: Storage, places: Sequence[str], files: tuple[tuple[str, int, int], ...]) -> ConfigDatabase | None:
    """``files`` are those of the config folder, which decide how long the answer holds."""
    try:
        databases = [_READERS[place](storage) for place in places]
    except PackageMissing as error:
        return ConfigDatabase(places[0], problem=str(error))
    newest = max(databases, key=lambda database: database.changed_at)
    return newest if newest.changed_at >= _json_changed_at(storage) else None


def _json_changed_at(storage: Storage) -> int:
    """When the JSON files changed last (ms), as far as they say so; 0 if none does. Damaged ones do not count."""
    latest = 0
    for path in (offsets_file(storage), TOPICS, GROUPS):
        for name, content in contents(storage, path):
            try:
                latest = max(latest, _saved_at(_parse_json(content, name)) or 0)
                break
            except ConfigFileError:
                continue
    return latest


def _separate_databases(storage: Storage) -> ConfigDatabase:
    there = [path for path, folder in SEPARATE_FOLDERS.items() if has_database(storage, folder)]
    databases = {path: Database(storage, SEPARATE_FOLDERS[path]) for path in there}
    families = {path: (database, DEFAULT_FAMILY, "kvDataVersion") for path, database in databases.items()}
    return _families_database(SEPARATE, families)


def _unified_database(storage: Storage) -> ConfigDatabase:
    database = Database(storage, UNIFIED)
    names = {OFFSETS: "consumerOffset", TOPICS: "topic", GROUPS: "subscriptionGroup"}
    return _families_database(UNIFIED, {path: (database, name, f"{name}Version") for path, name in names.items()})


def _families_database(place: str, families: Mapping[str, tuple[Database, str, str]]) -> ConfigDatabase:
    """``families``: by file, the database, its column family of JSON texts by name, and the one of its data version."""
    tables: dict[str, dict[str, Any]] = {}
    versions: dict[str, Any] = {}
    for path, (database, family, version_family) in families.items():
        if family in database.families:
            items = database.items(family)
            tables[path] = {key.decode("utf-8", "replace"): _value(value, database.name) for key, value in items}
        if version_family in database.families:
            for _, value in database.items(version_family):
                versions[path] = _value(value, database.name)
    offsets = {name: wrapper.get("offsetTable") for name, wrapper in tables.get(OFFSETS, {}).items()}
    return _database(place, offsets, tables.get(TOPICS, {}), tables.get(GROUPS), versions)


def _version_2_database(storage: Storage) -> ConfigDatabase:
    """Keys begin with 1, the number of a table (2 bytes), and 1 for its data version or 2 for a record.

    Source: ConsumerOffsetManagerV2, TopicConfigManagerV2, SubscriptionGroupManagerV2, ConfigHelper.
    """
    database = Database(storage, VERSION_2)
    tables = {OFFSETS: b"\1\0\1", TOPICS: b"\1\0\3", GROUPS: b"\1\0\4"}
    versions = {}
    offsets: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for path, table in tables.items():
        for _, value in database.items(prefix=table + b"\1"):
            versions[path] = {"timestamp": int.from_bytes(value[8:16], "big", signed=True)}
    topics, groups = (
        {
            key[6:].decode("utf-8", "replace"): _value(value[1:], database.name)
            for key, value in database.items(prefix=tables[path] + b"\2")
        }
        for path in (TOPICS, GROUPS)
    )
    for key, value in database.items(prefix=tables[OFFSETS] + b"\2"):
        group, end = _name_at(key, 4)
        topic, end = _name_at(key, end + 1)
        queue_id = int.from_bytes(key[end + 1 :], "big", signed=True)
        offsets[f"{topic}@{group}"][str(queue_id)] = int.from_bytes(value, "big", signed=True)
    return _database(VERSION_2, offsets, topics, groups, versions)


def _database(
    place: str,
    offsets: Mapping[str, Any],
    topics: Mapping[str, Any],
    groups: Mapping[str, Any] | None,
    versions: Mapping[str, dict[str, Any]],
) -> ConfigDatabase:
    documents: dict[str, dict[str, Any]] = {
        OFFSETS: {"offsetTable": offsets, "dataVersion": versions.get(OFFSETS)},
        TOPICS: {"topicConfigTable": topics},
    }
    if groups is not None:
        documents[GROUPS] = {"subscriptionGroupTable": groups}
    changed = (_saved_at({"dataVersion": version}) or 0 for version in versions.values())
    return ConfigDatabase(place, max(changed, default=0), documents)


_READERS: Mapping[str, Callable[[Storage], ConfigDatabase]] = {
    VERSION_2: _version_2_database,
    UNIFIED: _unified_database,
    SEPARATE: _separate_databases,
}


def _name_at(key: bytes, at: int) -> tuple[str, int]:
    """A name after its length in 2 bytes, and where it ends."""
    end = at + 2 + int.from_bytes(key[at : at + 2], "big")
    return key[at + 2 : end].decode("utf-8", "replace"), end


def _value(content: bytes, name: str) -> dict[str, Any]:
    return _parse_json(content, f"a value in {name}")


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
