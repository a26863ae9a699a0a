"""Reads the list of brokers for a run with several brokers.

    - name: broker-a
      store: /backup/broker-a/store
      config: /backup/broker-a/broker.conf
      subscriptions: /backup/events.jsonl
      version: 4.9.7
    - store: [/backup/broker-b/monday/store, /backup/broker-b/tuesday/store]

``store`` is one snapshot, or several in order. ``name`` and ``config`` are optional if the store
has the brokerName; ``subscriptions`` is optional with --subscriptions, ``version`` as --rocketmq-version is.
Paths are relative to the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from filtering.rocketmq_version import RocketMQVersion
from filtering.yaml_input import InvalidYaml, load
from jobs.night.inputs.subscription_file import SubscriptionFile, read_file
from schemas.errors import UsageError
from schemas.storage import Storage, local_path

_KEYS = ("name", "store", "config", "subscriptions", "version")


@dataclass(frozen=True)
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
    try:
        document = load(file.read_text(encoding="utf-8", errors="replace"))
    except InvalidYaml as error:
        raise UsageError(f"{file}, line {error.line}: {error}") from None
    if not isinstance(document, list) or not document:
        raise UsageError(f"{file} is not a list of brokers; start each with a dash, as in - store: /backup/a/store")
    return [_entry(entry, f"{file}, broker {number}", file.parent, shared) for number, entry in enumerate(document, 1)]


def _entry(entry: object, where: str, folder: Path, shared: SubscriptionFile | None) -> BrokerEntry:
    unknown = next((key for key in entry if key not in _KEYS), None) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or unknown is not None:
        what = "" if unknown is None else f"{unknown}: is not known; "
        raise UsageError(f"{where}: {what}a broker has the fields {', '.join(_KEYS)}")
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
