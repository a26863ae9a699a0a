"""Records what a running broker knows, for the nights that read a copy of its store.

A recording is a folder with a folder for each broker, named by its brokerName:

    subscription_events.jsonl   who subscribed to what, and when (docs/SUBSCRIPTIONS.md)
    offsets.jsonl               the offsets that groups committed, each with the time at which it was seen
    broker.conf                 the broker's configuration, without its secrets
    state.json                  what was seen last: where a later recorder goes on, and the broker's version

The two files of lines only grow. ``state.json`` has their lengths: what is behind them was written by a recorder that
died before it could write the state, and is written once more. Only requests of ReadRequest are sent.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from filtering.frozen import frozen
from filtering.rocketmq_version import RocketMQVersion
from filtering.subscription_data import SQL92, ConsumerGroupInfo, expression_type, filter_of
from filtering.subscriptions.events import (
    NOT_WATCHED,
    GroupTopic,
    SubscriptionEvent,
    consume_from_value,
    event_line,
    parse_consume_from,
)
from filtering.subscriptions.watch import NOBODY, Look, WatchedClient, WatchedGroup, asked_again, changes
from schemas.errors import UsageError
from schemas.live_broker import Committed, LiveBroker
from schemas.remoting import Connection, Credentials, RemotingError, masters, reason

EVENTS, OFFSETS, CONFIG, STATE = "subscription_events.jsonl", "offsets.jsonl", "broker.conf", "state.json"
MISSED_LOOKS = 3
"""After this many intervals without a look, the time is recorded as one in which nobody watched."""
LEAST_PAUSE = 1_000
"""ms from one look to the next, if the interval is not less."""
PAUSES = 100
"""The pause after a look is this many times as long as the broker takes to answer: at most 1 % of a core of it."""
COUNTED = 10
"""Looks of which the shortest answer counts. The first of a new recorder are as close as any may be."""


def _now() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class _State:
    """What was seen last. ``begin``: when that look began (ms; None: there was none). ``lengths``: of the files.

    ``left``: by group, the topics that it has left, and not come back to. ``moved``: the groups and topics with offsets
    that moved, and are not in the file yet. ``wrote_at``: when offsets were last written (ms).
    """

    begin: int | None = None
    version: str | None = None
    groups: dict[str, WatchedGroup] = field(default_factory=dict)
    registered: dict[str, ConsumerGroupInfo] = field(default_factory=dict)
    committed: Committed = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)
    moved: set[GroupTopic] = field(default_factory=set)
    wrote_at: int = 0
    lengths: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        committed = [[*key, {str(queue_id): offset for queue_id, offset in queues.items()}] for key, queues in
                     self.committed.items()]  # fmt: skip
        return json.dumps(
            {
                "begin": self.begin,
                "version": self.version,
                "lengths": self.lengths,
                "groups": {name: _group_row(group) for name, group in self.groups.items()},
                "registered": {name: list(info.subscriptions.values()) for name, info in self.registered.items()},
                "committed": committed,
                "left": self.left,
                "moved": sorted(self.moved),
                "wrote_at": self.wrote_at,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> _State:
        row = json.loads(text)
        registered: dict[str, ConsumerGroupInfo] = {}
        for name, subscriptions in row["registered"].items():
            registered[name] = ConsumerGroupInfo()
            registered[name].update_subscription(subscriptions)
        return cls(
            row["begin"],
            row["version"],
            {name: _group_of_row(group) for name, group in row["groups"].items()},
            registered,
            {
                (group, topic): {int(queue_id): at for queue_id, at in queues.items()}
                for group, topic, queues in row["committed"]
            },
            row.get("left", {}),
            {(group, topic) for group, topic in row.get("moved", ())},
            row.get("wrote_at", 0),
            row["lengths"],
        )


def _group_row(group: WatchedGroup) -> dict[str, Any]:
    row = asdict(group) | {"consume_from": consume_from_value(group.consume_from)}
    for client_id, client in group.clients.items():
        row["clients"][client_id]["consume_from"] = consume_from_value(client.consume_from)
    return row


def _group_of_row(row: dict[str, Any]) -> WatchedGroup:
    clients = {
        client_id: WatchedClient(**client | {"consume_from": parse_consume_from(client["consume_from"])})
        for client_id, client in row["clients"].items()
    }
    return WatchedGroup(**row | {"clients": clients, "consume_from": parse_consume_from(row["consume_from"])})


class BrokerRecorder:
    """Records one broker into ``folder``, its own. ``interval``: the most seconds between two looks.

    It goes on where the folder ends.
    """

    def __init__(self, folder: Path, broker: LiveBroker, interval: float, now: Callable[[], int] = _now) -> None:
        self.folder = folder
        self.broker = broker
        self._interval = interval
        self._now = now
        self._answered_in = deque([0] * COUNTED, COUNTED)
        self._is_new_connection = True
        self._state = _State()
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / STATE).exists():
            try:
                self._state = _State.from_text((folder / STATE).read_text(encoding="utf-8"))
            except (ValueError, KeyError, TypeError):
                raise UsageError(f"{folder / STATE} is damaged: remove it, or give another --output") from None
        for name in (EVENTS, OFFSETS):
            self._append(name, b"")

    def look(self) -> int:
        """Looks at the broker once, and writes what changed. Returns the number of new events.

        Raises RemotingError, OSError; then nothing was written, and the next look goes on.
        """
        try:
            return self._look()
        except (OSError, RemotingError):
            self._is_new_connection = True
            raise

    @property
    def pause(self) -> float:
        """Seconds from the beginning of the last look to that of the next one, so that it costs the broker little.

        The shortest of the last answers counts: a longer one waited for something else.
        """
        return min(self._interval, max(PAUSES * min(self._answered_in), LEAST_PAUSE) / 1000)

    def _look(self) -> int:
        last = self._state
        begin = self._now()
        config = self.broker.config()
        version = self.broker.version() if self._is_new_connection else last.version
        groups = self.broker.online(self.broker.groups())
        committed = self.broker.committed()
        end = max(self._now(), begin)
        self._answered_in.append(end - begin)
        look = Look(begin, end, last.begin)
        groups = {name: self._asked(name, group, look, committed) for name, group in groups.items()}
        lines = []
        if look.before is not None and end - look.before > MISSED_LOOKS * self._interval * 1000:
            lines.append(json.dumps({"at": end, "op": NOT_WATCHED, "since": look.before}))
        offsets, offsets_before = _by_group(committed), _by_group(last.committed)
        registered: dict[str, ConsumerGroupInfo] = {}
        left: dict[str, list[str]] = {}
        events: list[SubscriptionEvent] = []
        for name in sorted(last.groups.keys() | groups.keys() | last.left.keys()):
            before, after = last.groups.get(name, NOBODY), groups.get(name, NOBODY)
            registered[name] = ConsumerGroupInfo()
            if name in last.registered:
                registered[name].subscriptions |= last.registered[name].subscriptions
            left_before = last.left.get(name, [])
            new_events = changes(
                name, before, after, look, offsets[name], registered[name], offsets_before[name], left_before
            )
            if gone := {*left_before, *before.subscriptions} - after.subscriptions.keys():
                left[name] = sorted(gone)
            is_broadcasting = (after if after.clients else before).is_broadcasting
            lines += [event_line(replace(event, is_broadcasting=is_broadcasting)) for event in new_events]
            events += new_events
        state = replace(last, begin=begin, version=version, groups=groups, registered=registered, left=left)
        self._write(lines, look, committed, config, state)
        self._is_new_connection = False
        return len(events)

    def _asked(self, name: str, group: WatchedGroup, look: Look, committed: Committed) -> WatchedGroup:
        """The group with what its clients say, and with the born times of its new SQL92 filters."""
        before = self._state.groups.get(name, NOBODY)
        again = set(asked_again(before, group))
        clients = dict(group.clients)
        for client_id in clients.keys() - again:
            clients[client_id] = before.clients[client_id]
        answers = self.broker.running(name, {client_id: clients[client_id] for client_id in sorted(again)})
        for client_id in again:
            clients[client_id] = answers.get(client_id, replace(clients[client_id], consume_from=group.consume_from))
        known = {topic: filter_of(subscription) for topic, subscription in before.subscriptions.items()}
        born = dict(before.born)
        for topic, subscription in group.subscriptions.items():
            is_new = known.get(topic) != filter_of(subscription) or not before.clients
            if is_new and expression_type(subscription) == SQL92:
                born.pop(topic, None)
                at = self.broker.born_time(name, topic, committed)
                if at is not None and at <= look.end:
                    born[topic] = at
        return replace(group, clients=clients, born=born)

    def _write(self, lines: Sequence[str], look: Look, committed: Committed, config: str, state: _State) -> None:
        """Writes what a look has seen. Offsets that only moved are written once in an interval."""
        before = self._state.committed
        moved = {key for key, queues in committed.items() if before.get(key) != queues} | state.moved
        offsets: list[str] = []
        if look.end - state.wrote_at >= self._interval * 1000:
            offsets = [
                json.dumps({"at": look.end, "group": group, "topic": topic, "offsets": queues}, ensure_ascii=False)
                for (group, topic), queues in committed.items()
                if (group, topic) in moved
            ]
            state = replace(state, wrote_at=look.end)
            moved = set()
        lengths = {}
        for name, new in ((EVENTS, lines), (OFFSETS, offsets)):
            lengths[name] = self._append(name, "".join(f"{line}\n" for line in new).encode())
        path = self.folder / CONFIG
        if not path.exists() or path.read_text(encoding="utf-8") != config:
            _replace(path, config)
        self._state = replace(state, committed=committed, moved=moved, lengths=lengths)
        _replace(self.folder / STATE, self._state.text())

    def _append(self, name: str, lines: bytes) -> int:
        """Adds lines to a file, in place of those that the state does not have. Returns its length in bytes.

        A file that was taken away begins again.
        """
        with open(self.folder / name, "ab") as file:
            known = self._state.lengths.get(name)
            if known is not None and file.seek(0, os.SEEK_END) > known:
                file.truncate(known)
            file.write(lines)
            return file.seek(0, os.SEEK_END)


def _by_group(committed: Committed) -> defaultdict[str, dict[str, dict[int, int]]]:
    """By group, and then by topic and queue id."""
    offsets: defaultdict[str, dict[str, dict[int, int]]] = defaultdict(dict)
    for (group, topic), queues in committed.items():
        offsets[group][topic] = queues
    return offsets


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


class Recorder:
    """Records brokers into a folder: those at ``brokers``, and all that the ``name_servers`` list, also later ones.

    Of several name servers, the first that answers counts.
    """

    def __init__(
        self,
        folder: Path,
        brokers: Sequence[str],
        name_servers: Sequence[str],
        interval: float,
        credentials: Credentials | None = None,
    ) -> None:
        self._folder = folder
        self._interval = interval
        self._credentials = credentials
        self._name_servers = [Connection(address, credentials) for address in name_servers]
        self._unnamed = {address: Connection(address, credentials) for address in brokers}
        self._brokers: dict[str, BrokerRecorder] = {}

    def look(self) -> Iterator[tuple[str, int | str]]:
        """Looks at every broker once. For each: its name or address, and its number of new events, or why it failed."""
        for address, connection in list(self._unnamed.items()):
            try:
                broker = LiveBroker(connection)
                self._add(broker.name(), broker)
                del self._unnamed[address]
            except (OSError, RemotingError) as error:
                yield address, reason(error)
        if self._name_servers:
            try:
                for name, address in masters(self._name_servers).items():
                    if name not in self._brokers or self._brokers[name].broker.connection.address != address:
                        self._add(name, LiveBroker(Connection(address, self._credentials)))
            except (OSError, RemotingError) as error:
                yield ";".join(server.address for server in self._name_servers), reason(error)
        for name, recorder in self._brokers.items():
            try:
                yield name, recorder.look()
            except (OSError, RemotingError) as error:
                yield name, reason(error)

    @property
    def pause(self) -> float:
        """Seconds from the beginning of the last look to that of the next one: those of the slowest broker."""
        return max((recorder.pause for recorder in self._brokers.values()), default=self._interval)

    def _add(self, name: str, broker: LiveBroker) -> None:
        if name in ("", ".", "..") or "/" in name:
            raise RemotingError(f"{name!r} is no name for a folder")
        if name in self._brokers:
            self._brokers[name].broker.connection.close()
        self._brokers[name] = BrokerRecorder(self._folder / name, broker, self._interval)

    def close(self) -> None:
        for connection in (*self._name_servers, *self._unnamed.values()):
            connection.close()
        for recorder in self._brokers.values():
            recorder.broker.connection.close()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other recorders from a folder. Raises UsageError if one writes there, or it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".lock", "w")  # noqa: SIM115  # closed below
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot write to {folder} ({why}): give a folder that you may write to") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another record writes to {folder}") from None
        yield


@frozen
class RecordedBroker:
    """The recording of one broker. ``until``: when the last look at the broker began (ms)."""

    name: str
    events: Path
    config: Path
    version: RocketMQVersion | None
    until: int


def recorded_brokers(folder: Path) -> dict[str, RecordedBroker]:
    """The brokers of a recording, by name. Raises UsageError if there is none."""
    brokers = {}
    for state in sorted(folder.glob(f"*/{STATE}")):
        try:
            row = json.loads(state.read_text(encoding="utf-8"))
            version = None if row["version"] is None else RocketMQVersion.parse(row["version"])
            until = int(row["begin"])
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{state} is damaged: copy the recording again") from None
        name = state.parent.name
        brokers[name] = RecordedBroker(name, state.parent / EVENTS, state.parent / CONFIG, version, until)
    if not brokers:
        raise UsageError(f"{folder} has no recording: give the --output of record, or a copy of it")
    return brokers
