"""Reads what the config folder of a store says of groups that pop."""

from __future__ import annotations

from collections.abc import Iterator

from filtering.pops.groups import RETRY_MAX_TIMES, PopGroups
from filtering.subscriptions.events import GroupTopic
from schemas.rocketmq_store.config_files import GROUPS, ConfigFileError, read_document, read_json
from schemas.rocketmq_store.rocksdb import DatabaseError
from schemas.storage import Storage

REQUEST_MODES = "config/messageRequestMode.json"


def read_pop_groups(storage: Storage) -> PopGroups:
    """The groups that pop, as far as a store's files can be read: a damaged file says nothing."""
    try:
        popping = frozenset(pop_consumers(storage))
    except ConfigFileError:
        popping = frozenset()
    try:
        groups = _items((read_document(storage, GROUPS) or {}).get("subscriptionGroupTable"))
        configs = {group: config for group, config in groups if isinstance(config, dict)}
    except (ConfigFileError, DatabaseError):
        configs = {}
    times = {group: config.get("retryMaxTimes") for group, config in configs.items()}
    return PopGroups(
        popping,
        {group: most for group, most in times.items() if isinstance(most, int) and most != RETRY_MAX_TIMES},
        frozenset(group for group, config in configs.items() if config.get("consumeMessageOrderly") is True),
    )


def pop_consumers(storage: Storage) -> Iterator[GroupTopic]:
    """The groups and topics whose clients are told to use POP (MessageRequestModeManager). Raises ConfigFileError."""
    document = read_json(storage, REQUEST_MODES) or {}
    for topic, groups in _items(document.get("messageRequestModeMap")):
        for group, mode in _items(groups):
            if isinstance(mode, dict) and mode.get("mode") == "POP":
                yield group, topic


def _items(value: object) -> Iterator[tuple[str, object]]:
    yield from value.items() if isinstance(value, dict) else ()
