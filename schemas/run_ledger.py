"""The runs that changed the tables. A warehouse holds the table versions that its ledger lists.

The ledger's row is the last commit of a run. If a run dies earlier, its commits are not in the ledger's versions:
readers do not see them, and the next run undoes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import pyarrow as pa

from filtering.broker_config import BrokerConfig, changed_switches
from filtering.delivery.entries import MultiQueue, Queue
from filtering.frozen import frozen
from filtering.subscriptions.events import GroupTopic
from filtering.subscriptions.history import EarlierConfig
from filtering.time_spans import FOREVER
from schemas.delta.delta_log import TableState
from schemas.delta.table import LAYOUT, Table, column
from schemas.delta.warehouse import Warehouse
from schemas.pull_windows import PULL_WINDOWS

# The keys of ``inputs`` in a ledger entry, each with what its text says.
#
# A night's entry repeats the inputs of the broker's entry before, unless it has its own. An entry of maintenance has
# its inputs by broker (``BROKER/KEY``), and the broker's next nights repeat them.


SOFTWARE = "mqsieve"
"""The version of mqsieve."""
VERSION_FROM = "rocketmq_version_from"
"""Where the broker's version is from: GIVEN by the user of the run, GIVEN_BEFORE, or why it was taken for that one."""
GIVEN, GIVEN_BEFORE = "given", "given before"
NOT_SHOWN = "nothing shows the version"
"""Ends that reason if there is none: of a message log, or a store without the files that show it."""
MISREAD = "misread_settings"
"""Values of the last broker.conf that the broker reads in another way than they seem, as JSON: a text for each."""
STORE_FOLDER = "store"
"""The store folder of the last snapshot."""
MESSAGE_LOG = "messages"
"""The fingerprint of the files of the message log, if one was read so far."""
NUMBERED_LINES = "numbered_lines"
"""What was read of a message log without queue ids and offsets, as JSON; empty or absent if messages have real ones.

schemas/messages/message_log.py writes and reads it. Queue ids are then made up: each topic has queue 0.
"""
OFFSET_FILES = "offsets"
"""The fingerprint of the last snapshot's offsets."""
COMMITTED_AT = "committed_at"
"""The time (ms) of the last snapshot's committed offsets; empty if it is not known."""
IS_ESTIMATED = "committed_at_is_estimated"
"""Whether the broker does not save that time, so that it was estimated: ``true``, or empty."""
WATCHED_TO = "watched_to"
"""When the last look of the recording began that the night had (ms); empty or absent if it had none."""
NOT_COMMITTED = "not_committed"
"""The committed offsets that earlier snapshots had and the last one has not, as JSON.

jobs/night/past.py writes and reads it.
"""
QUEUES = "queues"
"""The number of queues that had consume queue files in the last snapshot."""
IN_DATABASE = "queues_in_database"
"""Whether the last snapshot's consume queues were in a database: ``true``, or empty."""
MULTI_QUEUES = "multi_queues"
"""How far LMQs came whose entries are not at the offsets that messages note, as JSON: [topic, queue id, MultiQueue]."""
READ_QUEUES = "read_queues"
"""By topic, the number of queues that the last snapshot, or an earlier one, had in its topics.json, as JSON.

A whole night keeps the topics that have messages.
"""
ASSUMED_QUEUES = "assumed_queues"
"""Where clients with other tags shared queues of an unknown number, as JSON: [group, topic, queues with messages]."""
RESETS_BY_TIME = "resets_by_time"
"""The offsets that offset resets by time set, as JSON: by the line of the event, by queue id."""
NOT_REPLAYED = "not_replayed"
"""What the last snapshot shows of consumption that is not replayed, as JSON.

schemas/rocketmq_store/not_replayed.py writes and reads it.
"""
POP_GROUPS = "pop_groups"
"""What the last snapshot's configuration says of groups that pop, as JSON (filtering/pops/modes.py)."""
POP_MODES = "pop_modes"
"""When groups were first known to pop topics, as JSON (filtering/pops/modes.py)."""
SUBSCRIPTION_FILE = "subscriptions"
"""The digest of the last subscription file."""
SUBSCRIPTIONS_FROM = "subscriptions_from"
"""Where the last subscription file came from, STORE or USER."""
STORE, USER = "store", "user"
FIRST_SNAPSHOT = "history"
"""Says that the subscriptions begin with a snapshot; empty if they do not."""
HOOKS = "hooks"
"""The filter hooks; empty if there were none."""
INPUTS_END = "inputs_end"
"""The time (ms) up to which the inputs so far reach."""
LAST_STORED = "last_stored"
"""The greatest store time (ms) of the messages that were read so far."""
LAST_MESSAGE = "last_message"
"""The physical offset of the last message that was read, and the fingerprint of its bytes in the log."""
DAMAGED_BODIES = "damaged_bodies"
"""The number of stored messages in the log whose body is damaged."""
CUT = "cut"
"""The physical offset from which the log differed from what earlier nights had read.

Empty if it did not differ, 0 if it was another log (a new epoch).
"""
REPEATED_FROM = "repeated_from"
"""The first of the earlier runs that the night repeated; empty if it repeated none."""
WITHDRAWN = "withdrawn"
"""The rows of earlier runs that a night or a rebuild removed or made again, as JSON.

schemas/ledger_check.py writes and reads it.
"""
MESSAGES_FROM = "messages_from"
"""The physical offset before which maintenance removed the messages."""
BODIES_FROM = "bodies_from"
"""The run before which maintenance removed the bodies."""
REBUILT = "rebuilt"
"""The tables that maintenance rebuilt from the others; of all brokers."""

REPLAY = "replay"
"""The job whose tables show what groups would receive if they read the log now, not what they received."""
MAINTAIN = "maintain"
"""The job that rewrites files of tables. Its entries hold the tables' versions after it, and are not nights."""
STEPS_BEFORE_DELIVER = frozenset({"ingest", "register", "dispatch"})
"""The jobs that do not decide deliveries. Their entries repeat ``as_of`` of the night before."""
_NUMBERS = pa.map_(pa.string(), pa.int64())
_TEXTS = pa.map_(pa.string(), pa.string())

RUN_LEDGER = Table(
    "run_ledger",
    "The runs that changed a table. Key: run, broker_name, job.",
    [
        column("run", pa.string(), "start time of the run, UTC; later runs have greater values", nullable=False),
        column("broker_name", pa.string(), nullable=False),
        column("job", pa.string(), "the command that ran", nullable=False),
        column("outcome", pa.string(), "done; a run that failed has no row", nullable=False),
        column("layout", pa.int32(), "version of the tables' layout", nullable=False),
        column(
            "broker_config",
            _TEXTS,
            "settings of broker.conf that differ from the defaults; rocketmqVersion if it is not 5.5.0",
        ),
        column("inputs", _TEXTS, "what the run read, by kind"),
        column("input_versions", _NUMBERS, "Delta versions read"),
        column("output_versions", _NUMBERS, "Delta versions of all tables after the run"),
        column("table_rows", _NUMBERS, "rows of all tables after the run"),
        column("table_digests", _TEXTS, "digests of all tables' lists of files after the run"),
        column("rows", _NUMBERS, "rows that the run added, by table"),
        column("log_start", pa.int64(), "physical offset at which the broker's log began"),
        column("ingested_to", pa.int64(), "physical offset up to which the log is in commitlog"),
        column("dispatched_to", pa.int64(), "physical offset up to which messages have their entries"),
        column("delivered_to", pa.int64(), "physical offset up to which new messages were filtered"),
        column("unsettled", pa.string(), "fingerprint of the bytes after ingested_to, which may still change"),
        column("as_of", pa.int64(), "ms since the epoch; deliveries are decided up to this time"),
        column("remarks", pa.list_(pa.string()), "remarks in the summary of the run"),
    ],
    partition_by=(),
    statistics_on=("run",),
)


class RemarkCode(StrEnum):
    """What a night may remark on. CONDITIONS of answers/attention.py has the severity and the meaning of each."""

    NO_MESSAGE = "no-message"
    DAMAGED_BODY = "damaged-body"
    MISSED_LOG = "missed-log"
    CUT_LOG = "cut-log"
    OTHER_BROKER = "other-broker"
    UNKNOWN_SUBSCRIPTION = "unknown-subscription"
    MISREAD_SETTING = "misread-setting"
    NO_FILTER_HOOKS = "no-filter-hooks"
    ASSUMED_QUEUES = "assumed-queues"
    BEHIND = "behind"
    OTHER_VERSION = "other-version"
    EMPTY_BODY = "empty-body"
    NOT_WATCHED = "not-watched"
    EARLIER_LOG = "earlier-log"
    REPAIRED = "repaired"
    NEW_VERSION = "new-version"
    NEW_EPOCH = "new-epoch"
    OLDER = "remark"
    """An older mqsieve made a remark without one of these codes."""


@frozen
class Remark:
    """What a night tells the user. The ledger keeps it as the line ``CODE: TEXT``."""

    code: RemarkCode
    text: str

    @property
    def line(self) -> str:
        return self.text if self.code is RemarkCode.OLDER else f"{self.code}: {self.text}"

    @classmethod
    def of_line(cls, line: str) -> Remark:
        """The reverse of ``line``."""
        code, _, text = line.partition(": ")
        return cls(RemarkCode(code), text) if code in set(RemarkCode) else cls(RemarkCode.OLDER, line)


@frozen
class LedgerEntry:
    """A row of the ledger. Offsets are physical, in bytes; ``as_of`` in ms."""

    run: str
    broker_name: str
    job: str
    broker_config: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    input_versions: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, TableState] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    log_start: int | None = None
    ingested_to: int | None = None
    dispatched_to: int | None = None
    delivered_to: int | None = None
    unsettled: str | None = None
    as_of: int | None = None
    remarks: tuple[Remark, ...] = ()
    outcome: str = "done"
    layout: int = LAYOUT
    maintained: str | None = None
    """The last maintenance after the run, before the next one."""

    @property
    def delivers(self) -> bool:
        """Whether the run decided deliveries: a whole night, or its last step."""
        return self.job not in STEPS_BEFORE_DELIVER

    @property
    def is_complete(self) -> bool:
        """Whether every message that was stored up to the end of the run has its entry and was filtered."""
        return self.ingested_to == self.dispatched_to == self.delivered_to

    @property
    def cut(self) -> int | None:
        """The physical offset from which the log was another one than before: 0 for a new epoch, None if it was not."""
        text = self.inputs.get(CUT)
        return int(text) if text else None

    @property
    def last_stored(self) -> int | None:
        """When the last message was stored that nights had read (ms); None if it is not known."""
        text = self.inputs.get(LAST_STORED)
        return int(text) if text else None

    @property
    def hooks(self) -> str:
        """The filter hooks of the run, as text; empty if it had none."""
        return self.inputs.get(HOOKS, "")

    @property
    def misread_settings(self) -> list[str]:
        """The values of the last broker.conf that the broker reads in another way than they seem: a text for each."""
        settings: list[str] = json.loads(self.inputs.get(MISREAD, "[]"))
        return settings

    @property
    def has_queue_ids(self) -> bool:
        """Whether messages have real queue ids; those of a message log without them are made up."""
        return not self.inputs.get(NUMBERED_LINES)

    @property
    def assumed_queues(self) -> dict[GroupTopic, int]:
        """By group and topic, the queues with messages, where clients shared queues of an unknown number so far."""
        return {(group, topic): queues for group, topic, queues in json.loads(self.inputs.get(ASSUMED_QUEUES, "[]"))}

    @property
    def multi_queues(self) -> dict[Queue, MultiQueue]:
        """By topic and queue id, how far LMQs came whose entries are not at the offsets that messages note."""
        rows = json.loads(self.inputs.get(MULTI_QUEUES, "[]"))
        return {(topic, queue_id): MultiQueue(*numbers) for topic, queue_id, *numbers in rows}

    @property
    def read_queues(self) -> dict[str, int]:
        """By topic, the number of queues in the topics.json of the run's snapshot, or of an earlier one."""
        queues: dict[str, int] = json.loads(self.inputs.get(READ_QUEUES, "{}"))
        return queues

    @cached_property
    def resets_by_time(self) -> dict[str, dict[int, int]]:
        """By the line of the event, the offsets that an offset reset by time set, by queue id."""
        by_line = json.loads(self.inputs.get(RESETS_BY_TIME, "{}"))
        return {
            line: {int(queue_id): offset for queue_id, offset in offsets.items()} for line, offsets in by_line.items()
        }

    @property
    def has_windows(self) -> bool:
        """Whether pull_windows has the windows of all nights: an older mqsieve did not store them."""
        return PULL_WINDOWS.name in self.tables

    @property
    def messages_from(self) -> int:
        """The physical offset before which maintenance removed the messages."""
        return int(self.inputs.get(MESSAGES_FROM, "0"))

    @property
    def version_is_given(self) -> bool:
        """Whether the user of the run gave the broker's version."""
        return self.inputs.get(VERSION_FROM) == GIVEN

    @property
    def version_is_assumed(self) -> bool:
        """Whether no user ever gave the broker's version, up to the run."""
        return self.inputs.get(VERSION_FROM) not in (GIVEN, GIVEN_BEFORE)

    @property
    def version_is_shown(self) -> bool:
        """Whether a user gave the broker's version, or something showed it."""
        return not self.inputs.get(VERSION_FROM, GIVEN).endswith(NOT_SHOWN)

    @property
    def version_text(self) -> str:
        """The broker's version, or what it was taken for and why."""
        return version_text(self.broker, self.inputs.get(VERSION_FROM, GIVEN))

    @cached_property
    def broker(self) -> BrokerConfig:
        """The configuration of the broker in the run."""
        return BrokerConfig.of({**self.broker_config, "brokerName": self.broker_name})

    def table_row(self) -> dict[str, Any]:
        """The entry as a row of the table."""
        row = {name: getattr(self, name) for name in RUN_LEDGER.schema.names if hasattr(self, name)}
        for name in ("broker_config", "inputs", "input_versions", "rows"):
            row[name] = list(row[name].items())
        return row | {
            "remarks": [remark.line for remark in self.remarks],
            "output_versions": [(name, state.version) for name, state in self.tables.items()],
            "table_rows": [(name, state.rows) for name, state in self.tables.items()],
            "table_digests": [(name, state.digest) for name, state in self.tables.items()],
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> LedgerEntry:
        """The reverse of :meth:`table_row`."""
        values = {name: row[name] for name in cls.__dataclass_fields__ if name in row}
        for name in ("broker_config", "inputs", "input_versions", "rows"):
            values[name] = dict(row[name] or ())
        rows, digests = dict(row["table_rows"] or ()), dict(row["table_digests"] or ())
        tables = {
            name: TableState(version, rows[name], digests[name]) for name, version in row["output_versions"] or ()
        }
        return cls(**values | {"tables": tables, "remarks": tuple(map(Remark.of_line, row["remarks"] or ()))})


def version_text(broker: BrokerConfig, version_from: str) -> str:
    """The version of a broker, or what it was taken for and why. ``version_from``: as in VERSION_FROM."""
    return broker.rocketmq_version if version_from in (GIVEN, GIVEN_BEFORE) else f"taken for {version_from}"


def runs_of(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """The entries of nights and of their single steps, with the changes by maintenance after them."""
    runs: list[LedgerEntry] = []
    for entry in entries:
        if entry.job != MAINTAIN:
            runs.append(entry)
            continue
        last = {run.broker_name: i for i, run in enumerate(runs)}
        for broker_name, i in last.items():
            runs[i] = _maintained(runs[i], broker_name, entry)
        runs[-1] = replace(runs[-1], tables=entry.tables, maintained=entry.run)
    return runs


def by_broker(runs: Iterable[LedgerEntry]) -> dict[str, list[LedgerEntry]]:
    """The runs of each broker, by its name."""
    runs_by_name: dict[str, list[LedgerEntry]] = {}
    for run in runs:
        runs_by_name.setdefault(run.broker_name, []).append(run)
    return runs_by_name


def unreplaced_runs(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """The runs of one broker whose rows are in the tables, each with the configuration that its rows came from.

    A run that finds the log cut or replaced also replaces the runs that had read the log beyond the cut. A night that
    repeats earlier ones, and has other switches than the run before it, repeats them with its own configuration.
    """
    runs: list[LedgerEntry] = []
    for before, entry in zip([None, *entries], entries, strict=False):
        if entry.cut is not None:
            runs = runs[: first_beyond(runs, entry.cut)] if entry.cut else []
        repeated = entry.inputs.get(REPEATED_FROM)
        if repeated and before is not None:
            runs = [run if run.run < repeated else _repeated(run, before, entry) for run in runs]
        runs.append(entry)
    return runs


def _repeated(run: LedgerEntry, before: LedgerEntry, by: LedgerEntry) -> LedgerEntry:
    config = repeated_config(run, before.broker, by.broker, by.version_is_given)
    return run if config == run.broker else replace(run, broker_config=config.changed)


def nights_of(runs: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """The whole nights among some runs, without its steps before deliver."""
    return [run for run in runs if run.delivers]


def filtered_to(nights: Sequence[LedgerEntry]) -> int:
    """The physical offset up to which some nights, in order, have filtered messages."""
    return nights[-1].delivered_to or 0 if nights else 0


def earlier_configs(nights: Sequence[LedgerEntry]) -> list[EarlierConfig]:
    """The configurations of a broker in its nights so far. A new one counts from the end of the night before."""
    return [EarlierConfig(night.broker, (night.as_of or 0) + 1) for night in nights]


def repeated_config(
    night: LedgerEntry, before: BrokerConfig, now: BrokerConfig, version_is_given: bool
) -> BrokerConfig:
    """The configuration with which a run that has ``now`` repeats a night. ``before``: that of the run before it.

    Switches that are new in the run count for the night, too. Its version stays, unless it was only assumed, and the
    user gives it now.
    """
    switches = now if changed_switches(before, now) else night.broker
    corrected = version_is_given and night.version_is_assumed
    version = now.rocketmq_version if corrected else night.broker.rocketmq_version
    return replace(switches, rocketmq_version=version)


def unread_times(
    nights: Sequence[LedgerEntry], log_start: int, last_stored: int | None, as_of: int
) -> list[tuple[int, int]]:
    """The times [from, to) (ms) of which no copy of the log has all messages: its end, and parts between two copies.

    ``nights`` are those before a night which ended at ``as_of``, whose copy began at ``log_start``. ``last_stored``:
    when the last message of its copy was stored (None: not known).
    """
    starts = [(night.log_start or 0, night.as_of or 0) for night in nights[1:]] + [(log_start, as_of)]
    between = [
        (before.last_stored or before.as_of or 0, end)
        for before, (start, end) in zip(nights, starts, strict=False)
        if before.ingested_to is not None and before.ingested_to < start
    ]
    return [*between, (as_of if last_stored is None else last_stored, FOREVER)]


def first_beyond(entries: Sequence[LedgerEntry], offset: int) -> int:
    """The index of the first entry that read the log beyond a physical offset; the number of entries if none did."""
    return next((i for i, entry in enumerate(entries) if (entry.ingested_to or 0) > offset), len(entries))


def _maintained(night: LedgerEntry, broker_name: str, maintenance: LedgerEntry) -> LedgerEntry:
    """The last entry of a broker after maintenance. Its inputs are those of the broker's next nights, too."""
    prefix = f"{broker_name}/"
    broker_inputs = {
        name.removeprefix(prefix): value for name, value in maintenance.inputs.items() if name.startswith(prefix)
    }
    dispatched_to = night.delivered_to if REBUILT in maintenance.inputs else night.dispatched_to
    return replace(night, inputs={**night.inputs, **broker_inputs}, dispatched_to=dispatched_to)


def read_ledger(warehouse: Warehouse) -> list[LedgerEntry]:
    """All entries, in the order of the runs. Raises TableDamaged."""
    if not warehouse.exists(RUN_LEDGER):
        return []
    entries = [LedgerEntry.from_row(row) for row in warehouse.rows(RUN_LEDGER).to_pylist()]
    return sorted(entries, key=lambda entry: entry.run)
