"""Reads what the user gives for a night: copies of stores, broker configurations, subscriptions, brokers, filter hooks.

- StoreSnapshot: a copy of a broker's store, with its log, queues, consumer offsets and subscriptions.
- Broker: which broker a run replays, with which configuration and version (:func:`broker_of`).
- SubscriptionFile: files of subscriptions, read with :mod:`schemas.subscription_files` and combined.
- BrokerEntry: an entry of the file for ``--brokers``. FilterHook: one of that for ``--filter-hooks``.

All raise UsageError for what they cannot read.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path

import numpy as np

from filtering.broker_config import BrokerConfig, InvalidBrokerConfig, ReadBrokerConfig, read_properties
from filtering.consumption.offsets import BrokerOffsets
from filtering.counted import did_you_mean
from filtering.delivery.filter_hooks import FunctionHook, Hook
from filtering.frozen import frozen
from filtering.rocketmq_version import NEWEST, RocketMQVersion, ShownVersions
from filtering.subscriptions.events import GroupTopic, InvalidSubscriptionEvent, SubscriptionEvents
from filtering.time_spans import DAY
from schemas import IS_PACKAGE
from schemas.errors import PROGRAM, UsageError
from schemas.operator_tools import versions_in_log
from schemas.rocketmq_store.commitlog_walk import Records, Walk, first_piece
from schemas.rocketmq_store.config_files import (
    broker_name,
    read_consumer_offsets,
    read_topics,
    saves_time_of_offsets,
    versions_in_store,
)
from schemas.rocketmq_store.queue_files import has_extension, queue_index, reads_database
from schemas.rocketmq_store.record_layout import longs
from schemas.rocketmq_store.recovery import checkpoint
from schemas.rocketmq_store.segments import Segment, segments
from schemas.run_ledger import GIVEN, GIVEN_BEFORE, NOT_SHOWN, VERSION_FROM, LedgerEntry, version_text
from schemas.storage import Storage, local_path
from schemas.subscription_files import is_consumer_filter, parse_subscriptions
from schemas.yaml_input import InvalidYaml, load, load_file

# Stores.


LOGS = ("broker.log", "logs/rocketmqlogs/broker.log", "logs/broker.log")
"""Where a copy of a store may have the broker's log, which is outside of the broker's own store folder."""
LAST_BYTES = 1 << 20
REMOTE_READS = 16
"""Queues of a store in an object store whose entries are looked up at the same time."""
MOST_IDLE = 366 * DAY
"""Milliseconds. A time that is this much later than the last message is ignored."""


@frozen
class StoreSnapshot:
    """A copy of a broker's store. ``storage`` is the store folder, or its commitlog folder."""

    storage: Storage

    @cached_property
    def segments(self) -> list[Segment]:
        """The segments of the log, in order. Raises CommitLogError if there are none."""
        return segments(self.storage)

    def check(self) -> None:
        """Raises UsageError if there is no log, or the folder above is the store; OSError if it cannot be read."""
        above, _, name = self.storage.root.rpartition("/")
        if name == "commitlog" and Storage(above).child("config").is_folder():
            raise UsageError(f"{self.storage.root} is only the log of the store {above}: give that")
        for segment in self.segments:
            with segment.open():
                pass

    @cached_property
    def taken_at(self) -> int:
        """The earliest time (ms) at which the snapshot can have been taken: the latest time in its files.

        0 if the log has no message: there is no other time to hold the rest against.
        """
        _, committed_at = self._committed
        return self._latest(committed_at or 0, checkpoint(self.storage)[0])

    def _latest(self, *others: int) -> int:
        """The latest of the last store time and other times (ms), without those that are too late to be right."""
        last = self._last_store_timestamp
        return max([last, *(time for time in others if time < last + MOST_IDLE)])

    @cached_property
    def _last_store_timestamp(self) -> int:
        """The latest store time of the last messages, without those of damaged records.

        A time counts if the messages after it are as late, but for a day.
        """
        for segment in reversed(self.segments):
            end = segment.data_end
            if end > segment.offset:
                walk = Walk(segment, max(segment.offset, end - LAST_BYTES), segment.end, end, synchronise=True)
                store_timestamps = [
                    longs(piece.log, piece.at("store_timestamp")) for piece in walk if isinstance(piece, Records)
                ]
                if store_timestamps:
                    times = np.concatenate(store_timestamps)
                    latest = np.median(times) + MOST_IDLE
                    return next(
                        int(times[at])
                        for at in np.argsort(times)[::-1].tolist()
                        if times[at] <= min(np.median(times[at:]) + DAY, latest)
                    )
        return 0

    @cached_property
    def broker_name(self) -> str | None:
        """The brokerName; None if the store does not have it. Raises CommitLogError if there is no log."""
        return broker_name(read_topics(self.storage)) if self.segments else None

    @cached_property
    def versions(self) -> ShownVersions | None:
        """What the files, and a broker.log beside them, show of the broker's version; None if they show nothing."""
        in_store, in_log = versions_in_store(self.storage), self._versions_in_log()
        return in_log if in_store is None else in_store.narrowed(in_log)

    def _versions_in_log(self) -> ShownVersions | None:
        for name in LOGS:
            if content := self.storage.read(name):
                return versions_in_log(content.decode("utf-8", "replace"))
        return None

    @cached_property
    def _committed(self) -> tuple[dict[GroupTopic, dict[int, int]], int | None]:
        """The committed offsets, and when the broker saved them (ms); None: not known.

        A broker of 4.x does not write the time, but saves every 5 s: the newest time in the snapshot counts.
        """
        committed, saved_at = read_consumer_offsets(self.storage) or ({}, None)
        if committed and self._is_estimated:
            saved_at = self._latest(checkpoint(self.storage)[0]) or None
        return committed, saved_at

    @cached_property
    def _is_estimated(self) -> bool:
        return not saves_time_of_offsets(self.storage)

    @property
    def fingerprint(self) -> str:
        """A hash of the committed offsets. It changes when consumers commit."""
        committed, _ = self._committed
        text = repr(sorted((key, sorted(queues.items())) for key, queues in committed.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @cached_property
    def offsets(self) -> BrokerOffsets:
        """The queues and the consumer offsets in the snapshot."""
        committed, committed_at = self._committed
        index, log_start = queue_index(self.storage), self.segments[0].offset
        min_offsets: defaultdict[str, dict[int, int]] = defaultdict(dict)

        def min_offset(queue: tuple[str, int]) -> int:
            return index.min_offset(*queue, log_start)

        with ThreadPoolExecutor(1 if self.storage.is_local else REMOTE_READS) as threads:
            for (topic, queue_id), offset in zip(index.queues, threads.map(min_offset, index.queues), strict=True):
                min_offsets[topic][queue_id] = offset

        def stored_at(topic: str, queue_id: int, offset: int) -> int | None:
            entry = index.entry(topic, queue_id, offset)
            return None if entry is None else self._stored_at(entry.commitlog_offset)

        return BrokerOffsets(
            committed,
            committed_at,
            min_offsets,
            read_topics(self.storage),
            stored_at=stored_at,
            log_start=log_start,
            is_estimated=self._is_estimated,
            in_files=not reads_database(self.storage),
        )

    def _stored_at(self, commitlog_offset: int) -> int | None:
        """The store time (ms) of the message at a physical offset; 0 if it was deleted, None if it is damaged."""
        if commitlog_offset < self.segments[0].offset:
            return 0
        for segment in self.segments:
            if segment.offset <= commitlog_offset < segment.end:
                piece = first_piece(segment, commitlog_offset)
                if isinstance(piece, Records):
                    return int(longs(piece.log, piece.at("store_timestamp"))[0])
        return None


DEFAULT_NAME = BrokerConfig().broker_name


@frozen
class Broker:
    """The configuration of a broker. ``source`` says where it comes from; ``is_given``: from a file of the user.

    ``name_in_store`` is the brokerName that the store shows, if broker.conf alone gives another one; else None.
    ``misread`` and ``ignored`` are those of ReadBrokerConfig. ``version_from``: where the version is from, as the
    ledger has it (VERSION_FROM). ``shown``: what the store shows of the version, if that is not so; else None.
    """

    config: BrokerConfig
    source: str
    is_given: bool = False
    name_in_store: str | None = None
    misread: Sequence[str] = ()
    ignored: Sequence[str] = ()
    version_from: str = f"{NEWEST}: {NOT_SHOWN}"
    shown: str | None = None

    @property
    def version_text(self) -> str:
        """The version, or what it was taken for and why."""
        return version_text(self.config, self.version_from)

    @property
    def name(self) -> str:
        return self.config.broker_name


def read_broker_config(file: Path, version: RocketMQVersion = NEWEST) -> ReadBrokerConfig:
    """Reads the broker.conf of a broker of a version, or the same settings in YAML. Raises UsageError."""
    try:
        if file.suffix in (".yaml", ".yml"):
            return ReadBrokerConfig(BrokerConfig.from_yaml(load(file.read_text(encoding="utf-8"))))
        return read_properties(file.read_text(encoding="latin-1"), version)  # as Java reads properties
    except InvalidYaml as error:
        raise UsageError(f"{file}: line {error.line}: {error}") from None
    except (InvalidBrokerConfig, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}") from None


def broker_of(
    config_file: Path | None,
    snapshot: StoreSnapshot | None,
    last: Mapping[str, LedgerEntry],
    name: str | None = None,
    reads_messages: bool = True,
    version: RocketMQVersion | None = None,
) -> Broker:
    """The broker of a run.

    ``version``: the one that the user gave. Without it, the last run's counts while the store does not show another
    one; then what the store shows; then the newest.

    ``last``: the last ledger entry of each broker. ``name``: the name that the user gave. ``reads_messages``: whether
    the run reads messages, which must not be added to the wrong broker.

    Without a file, the configuration is the one of the broker's last run. In the first run, the property filter
    counts as on, and the bit map counts as on if the store has a consume queue extension. A broker that reads its
    consume queues in RocksDB has no extension, whatever its configuration says (RocksDBConsumeQueue). Raises UsageError
    if the broker is ambiguous.
    """
    broker = _configured(config_file, snapshot, last, name, reads_messages)
    broker = _with_version(broker, version, snapshot, last.get(broker.name))
    if config_file is not None and broker.config.version.knows_maped_files:
        read = read_broker_config(config_file, broker.config.version)
        config = replace(read.config, broker_name=broker.name, rocketmq_version=broker.config.rocketmq_version)
        broker = replace(broker, config=config, misread=read.misread, ignored=read.ignored)
    if snapshot is None or not reads_database(snapshot.storage):
        return broker
    config = replace(broker.config, enable_consume_queue_ext=False)
    return replace(broker, config=config, source=f"{broker.source}; consume queues in RocksDB have no filter bit map")


def _configured(
    config_file: Path | None,
    snapshot: StoreSnapshot | None,
    last: Mapping[str, LedgerEntry],
    name: str | None,
    reads_messages: bool,
) -> Broker:
    given = read_broker_config(config_file) if config_file is not None else None
    in_store = snapshot.broker_name if snapshot is not None and name is None else None
    other = None
    if name is None and given is not None and given.config.broker_name != DEFAULT_NAME:
        name = given.config.broker_name
        other = in_store if in_store != name else None
    name = name or in_store or _name_in_warehouse(last, reads_messages)
    if given is not None:
        config = replace(given.config, broker_name=name)
        return Broker(config, str(config_file), True, other, given.misread, given.ignored)
    if name in last:
        return Broker(last[name].broker, "no --broker-config: as in the last run")
    return _assumed(name, snapshot)


def _with_version(
    broker: Broker, given: RocketMQVersion | None, snapshot: StoreSnapshot | None, last: LedgerEntry | None
) -> Broker:
    shown = snapshot.versions if snapshot is not None else None

    def of(version: RocketMQVersion, version_from: str) -> Broker:
        other = None if shown is None or shown.includes(version) else shown.reason
        config = replace(broker.config, rocketmq_version=str(version))
        return replace(broker, config=config, version_from=version_from, shown=other)

    if given is not None:
        return of(given, GIVEN)
    if last is not None and (shown is None or shown.includes(last.broker.version)):
        assumed = last.inputs.get(VERSION_FROM, f"{NEWEST}: {NOT_SHOWN}") if shown is None else shown.reason
        return of(last.broker.version, assumed if last.version_is_assumed else GIVEN_BEFORE)
    return of(NEWEST, f"{NEWEST}: {NOT_SHOWN}") if shown is None else of(shown.taken_for, shown.reason)


def _name_in_warehouse(last: Mapping[str, LedgerEntry], reads_messages: bool) -> str:
    """The only known broker, or the default name. Raises UsageError if that may be the wrong broker."""
    if len(last) == 1:
        (only_broker,) = last
        if reads_messages and only_broker != DEFAULT_NAME:
            raise UsageError(
                f"which broker is this? Neither --broker-config nor the store has its brokerName, and the warehouse "
                f"holds {only_broker}: give a --broker-config with brokerName={only_broker} to continue it, or with "
                "another name"
            )
        return only_broker
    if last:
        raise UsageError(
            f"the warehouse holds the brokers {', '.join(last)}: choose one with brokerName in --broker-config, "
            "or with name in --brokers"
        )
    return DEFAULT_NAME


def _assumed(name: str, snapshot: StoreSnapshot | None) -> Broker:
    """A broker without a configuration, in its first run."""
    bit_map = snapshot is not None and has_extension(snapshot.storage)
    since = f", since {snapshot.storage.root} has {'a' if bit_map else 'no'} consumequeue_ext" if snapshot else ""
    config = BrokerConfig(
        broker_name=name,
        enable_property_filter=True,
        enable_consume_queue_ext=bit_map,
        enable_calc_filter_bit_map=bit_map,
    )
    switch = "on" if bit_map else "off"
    counts = f"the property filter counts as on, the bit map as {switch}"
    return Broker(config, f"no --broker-config: {counts}{since}")


# Files of subscriptions.


@frozen
class SubscriptionFile:
    """The events of a file or of several, and a SHA-256 ``digest`` of the bytes.

    ``rejected``: the rejected entries of each file, by its name. ``filters_only``: all entries are of
    consumerFilter.json files, which have only SQL92 filters. ``is_in_store``: it is the broker's own list.
    ``watched_to``: of a recording, when the last look at the broker began (ms).
    """

    digest: str
    events: SubscriptionEvents
    rejected: Mapping[str, Sequence[InvalidSubscriptionEvent]]
    filters_only: bool
    is_in_store: bool = False
    watched_to: int | None = None

    @property
    def rejected_lines(self) -> list[str]:
        """The rejected entries, with their file, line and reason."""
        return [
            f"{name}, line {entry.line}: {entry.reason}" for name, entries in self.rejected.items() for entry in entries
        ]


def read_subscriptions(name: str, content: bytes) -> SubscriptionFile:
    """Parses the content of a subscription file, in any of its formats."""
    text = content.decode("utf-8", "surrogateescape")
    events = parse_subscriptions(text)
    digest = hashlib.sha256(content).hexdigest()
    return SubscriptionFile(digest, events, {name: events.rejected}, is_consumer_filter(text))


_EXAMPLE = "conf/subscriptions.example.yaml"
if IS_PACKAGE:
    _EXAMPLE = str(Path(__file__).parents[2] / _EXAMPLE)


def read_file(path: Path) -> SubscriptionFile:
    """Reads a file that a user names. Raises UsageError if no line of it can be used."""
    file = read_subscriptions(path.name, path.read_bytes())
    if file.events.rejected and not file.events.events:
        first = file.events.rejected[0]
        raise UsageError(
            f"{path} has no subscription (line {first.line}: {first.reason}); {_EXAMPLE} is an "
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
        tuple(gap for file in files for gap in file.events.not_watched),
    )
    rejected: defaultdict[str, list[InvalidSubscriptionEvent]] = defaultdict(list)
    for file in files:
        for name, entries in file.rejected.items():
            rejected[name] += entries
    digest = hashlib.sha256("".join(file.digest for file in files).encode()).hexdigest()
    return SubscriptionFile(digest, events, rejected, all(file.filters_only for file in filled))


# The list of brokers for a run with several brokers.
#
#     - name: broker-a
#       store: /backup/broker-a/store
#       config: /backup/broker-a/broker.conf
#       subscriptions: /backup/events.jsonl
#       version: 4.9.7
#     - store: [/backup/broker-b/monday/store, /backup/broker-b/tuesday/store]
#
# ``store`` is one snapshot, or several in order. ``name`` and ``config`` are optional if the store has the brokerName;
# ``subscriptions`` is optional with --subscriptions, ``version`` as --rocketmq-version is. Paths are relative to the
# file.


_KEYS = ("name", "store", "config", "subscriptions", "version")


@frozen
class BrokerEntry:
    """One broker: its snapshots in order, its broker.conf and its subscriptions. None means that the store has it."""

    name: str | None
    stores: tuple[Storage, ...]
    config: Path | None
    shared_subscriptions: SubscriptionFile | None
    subscriptions: Path | None = None
    version: RocketMQVersion | None = None

    def read_subscriptions(self) -> SubscriptionFile | None:
        """The broker's own subscriptions, or else the shared ones. Raises UsageError."""
        return self.shared_subscriptions if self.subscriptions is None else read_file(self.subscriptions)


def read_brokers(file: Path, shared: SubscriptionFile | None) -> list[BrokerEntry]:
    """Reads a list of brokers. ``shared``: the subscriptions of those without an own file. Raises UsageError."""
    document = load_file(file.read_text(encoding="utf-8", errors="replace"), file)
    if not isinstance(document, list) or not document:
        raise UsageError(f"{file} is not a list of brokers; start each with a dash, as in - store: /backup/a/store")
    return [_entry(entry, f"{file}, broker {number}", file.parent, shared) for number, entry in enumerate(document, 1)]


def _entry(entry: object, where: str, folder: Path, shared: SubscriptionFile | None) -> BrokerEntry:
    unknown = next((key for key in entry if key not in _KEYS), None) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or unknown is not None:
        what, hint = ("", "") if unknown is None else (f"{unknown}: is not known; ", did_you_mean(unknown, _KEYS))
        raise UsageError(f"{where}: {what}a broker has the fields {', '.join(_KEYS)}{hint}")
    stores = entry.get("store")
    stores = [stores] if isinstance(stores, str) else stores
    if not isinstance(stores, list) or not stores or not all(isinstance(store, str) for store in stores):
        raise UsageError(f"{where}: store: is missing; it is a folder, or a list of them")
    texts = {key: entry.get(key) for key in ("name", "config", "subscriptions", "version")}
    for key, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{where}: {key}: must be a text")
    config, subscriptions = (
        local_path(text, folder) if (text := texts[key]) else None for key in ("config", "subscriptions")
    )
    stored = tuple(Storage.at(store, folder) for store in stores)
    try:
        version = RocketMQVersion.parse(texts["version"]) if texts["version"] is not None else None
    except ValueError as error:
        raise UsageError(f"{where}: version: {error}") from None
    return BrokerEntry(texts["name"], stored, config, shared, subscriptions, version)


# The user's list of filter hooks: code with which clients drop messages that they received.
#
#     - group: cg_paid_orders
#       topic: OrderEvents
#       predicate: properties['region'] = 'hangzhou'   # Spark SQL over an entry and its message's properties
#     - group: cg_all_orders
#       topic: OrderEvents
#       function: my_hooks:large_orders   # RecordBatch of ENTRY_COLUMNS -> BooleanArray
#
# A hook sees the messages that passed the client's tag check. A message for which it is not true gets the outcome
# DROPPED_BY_HOOK. If a group has several hooks on a topic, all of them must be true.


KEYS = ("group", "topic", "predicate", "function")


@frozen
class FilterHook:
    """One entry of the file. ``code`` is the SHA-256 of the file with the function, empty for a predicate."""

    consumer_group: str
    topic: str
    predicate: str | None
    function: FunctionHook | None
    code: str = ""

    @property
    def text(self) -> str:
        """The hook as text, for the ledger."""
        action = self.predicate or (self.function and self.function.name, self.code)
        return repr((self.consumer_group, self.topic, action))


def text_of(hooks: Iterable[FilterHook]) -> str:
    """The hooks as text, for the ledger; empty if there are none."""
    return "; ".join(hook.text for hook in hooks)


def read_filter_hooks(file: Path) -> tuple[FilterHook, ...]:
    """The hooks listed in ``file``. Raises UsageError for an entry that is not a hook."""
    entries = load_file(file.read_text(encoding="utf-8", errors="replace"), file) or []
    if not isinstance(entries, list):
        raise UsageError(f"{file} is not a list; start each hook with a dash, as in - group: cg_paid")
    return tuple(_hook(entry, f"{file}, hook {number}") for number, entry in enumerate(entries, start=1))


def _hook(entry: object, where: str) -> FilterHook:
    is_hook = isinstance(entry, dict) and all(key in KEYS and isinstance(text, str) for key, text in entry.items())
    if not isinstance(entry, dict) or not is_hook or ("predicate" in entry) == ("function" in entry):
        raise UsageError(f"{where}: a hook has group:, topic: and either predicate: or function:")
    for key in ("group", "topic"):
        if key not in entry:
            raise UsageError(f"{where}: {key}: is missing")
    if "predicate" in entry:
        return FilterHook(entry["group"], entry["topic"], entry["predicate"], None)
    module_name, _, name = entry["function"].partition(":")
    try:
        module = importlib.import_module(module_name)
        function = getattr(module, name)
        code = Path(inspect.getfile(module)).read_bytes()
    except Exception as error:  # importing runs the user's code
        raise UsageError(
            f"{where}: no function {entry['function']}: {error}; write module:name, and add its folder to PYTHONPATH"
        ) from None
    if not callable(function):
        raise UsageError(f"{where}: {entry['function']} is not a function")
    hook = FunctionHook(entry["function"], function)
    return FilterHook(entry["group"], entry["topic"], None, hook, hashlib.sha256(code).hexdigest())


def check_groups(hooks: Iterable[FilterHook], known: Iterable[GroupTopic]) -> None:
    """Raises UsageError for a hook whose group and topic are not among the subscribed ones, ``known``."""
    subscribed = set(known)
    for hook in hooks:
        if (hook.consumer_group, hook.topic) not in subscribed:
            raise UsageError(
                f"filter hook of {hook.consumer_group} on {hook.topic}: the group has no subscription to the topic; "
                "export subscriptions lists them"
            )


def hooks_by_group(hooks: Sequence[FilterHook]) -> Mapping[GroupTopic, Sequence[Hook]]:
    """The hooks on the rows of :func:`jobs.night.hooked_task.with_answers`, by group and topic."""
    answers = {key: itemgetter(name) for key, name in answer_names(hooks).items()}
    by_group: dict[GroupTopic, list[Hook]] = defaultdict(list)
    for hook in hooks:
        answer = hook.function if hook.predicate is None else answers[hook.topic, hook.predicate]
        if answer is not None:
            by_group[hook.consumer_group, hook.topic].append(answer)
    return by_group


def answer_names(hooks: Iterable[FilterHook]) -> dict[GroupTopic, str]:
    """The name of the column with the answers of each predicate, by topic and predicate."""
    distinct = dict.fromkeys((hook.topic, hook.predicate) for hook in hooks if hook.predicate is not None)
    return {key: f"hook_{i}" for i, key in enumerate(distinct)}
