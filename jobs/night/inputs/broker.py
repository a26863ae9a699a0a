"""Finds out which broker a run replays, and with which configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from filtering.broker_config import BrokerConfig, InvalidBrokerConfig, ReadBrokerConfig, read_properties
from filtering.rocketmq_version import NEWEST, RocketMQVersion
from jobs.night.inputs.snapshot import StoreSnapshot
from schemas.errors import UsageError
from schemas.ledger_inputs import GIVEN, GIVEN_BEFORE, VERSION_FROM
from schemas.rocketmq_store.consumequeue.consume_queue_ext import has_extension
from schemas.rocketmq_store.consumequeue.queue_index import reads_database
from schemas.run_ledger import LedgerEntry, version_text

NOT_SHOWN = f"{NEWEST}: nothing shows the version"
DEFAULT_NAME = BrokerConfig().broker_name


@dataclass(frozen=True)
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
    version_from: str = NOT_SHOWN
    shown: str | None = None

    @property
    def version_text(self) -> str:
        """The version, or what it was taken for and why."""
        return version_text(self.config, self.version_from)

    @property
    def name(self) -> str:
        return self.config.broker_name


def read_broker_config(file: Path) -> ReadBrokerConfig:
    """Reads a broker.conf, or the same settings in YAML. Raises UsageError."""
    try:
        if file.suffix in (".yaml", ".yml"):
            return ReadBrokerConfig(BrokerConfig.from_yaml(file.read_text(encoding="utf-8")))
        return read_properties(file.read_text(encoding="latin-1"))  # as Java reads properties
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
        assumed = last.inputs.get(VERSION_FROM, NOT_SHOWN) if shown is None else shown.reason
        return of(last.broker.version, assumed if last.version_is_assumed else GIVEN_BEFORE)
    return of(NEWEST, NOT_SHOWN) if shown is None else of(shown.taken_for, shown.reason)


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
