"""Command lines of nights, and the tables after them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from answers.export import Selection, batches_of, columns_of, files_of
from jobs import nightly
from jobs.cli import night_job
from jobs.export import NAMES
from schemas.delta.warehouse import Warehouse
from tests.captures import DAMAGED, capture, rows

NIGHTS = (1, 2, 3, 4)
"""The nights of the running broker."""
RUN_COLUMNS = frozenset({"run"})
EXCEPT_LEDGER = tuple(name for name in NAMES if name != "run_ledger")
Places = list[tuple[int, int]]
Received = Counter[tuple[str, str, int, int, int]]


class Ended(NamedTuple):
    """The exit code and the output of a job."""

    code: int
    out: str
    error: str


Run: TypeAlias = Callable[..., Ended]
"""Runs a job with arguments, as the fixture ``run`` does."""


def arguments(name: str, warehouse: Path | str, *more: object) -> list[str]:
    """The command line of a night on a capture. Damaged captures use the subscriptions of the undamaged one."""
    undamaged = capture("small" if name in DAMAGED else name)
    return night(
        warehouse, capture(name) / "store", undamaged / "subscription_events.jsonl", undamaged / "broker.conf", *more
    )


def night(warehouse: Path | str, store: Path, events: Path, config: Path, *more: object) -> list[str]:
    """The command line of a night on any store."""
    given = ("--store", store, "--subscriptions", events, "--broker-config", config, "--warehouse", warehouse)
    return list(map(str, (*given, *more)))


def living(number: int, warehouse: Path | str, *more: object) -> list[str]:
    """The command line of a night of the running broker, 1 to 4."""
    broker = capture("nights_dev")
    folder = broker / f"night_{number}"
    return night(warehouse, folder / "store", folder / "subscription_events.jsonl", broker / "broker.conf", *more)


def rows_of(warehouse: Warehouse | Path, name: str, *columns: str) -> Iterator[dict[str, Any]]:
    """The rows of a table, as readers see them."""
    opened = warehouse if isinstance(warehouse, Warehouse) else Warehouse.at(str(warehouse))
    for batch in batches_of(opened, name, Selection(columns=columns or None)):
        yield from batch.to_pylist(maps_as_pydicts="strict")


def received(warehouse: Warehouse | Path, group: str) -> list[int]:
    """The queue offsets of all deliveries of a group."""
    rows = rows_of(warehouse, "deliveries", "consumer_group", "queue_offset")
    return sorted(row["queue_offset"] for row in rows if row["consumer_group"] == group)


def received_live(name: str) -> Counter[tuple[str, str, int, int]]:
    """Group, topic, queue id and queue offset of each message that the consumers in a capture received."""
    columns = ("group", "topic", "queueId", "queueOffset")
    return Counter(tuple(row[column] for column in columns) for row in rows(name, "live"))


def delivered(warehouse: Path) -> Counter[tuple[str, str, int, int]]:
    """Group, topic, queue id and queue offset of each delivery in a warehouse."""
    return Counter(
        (row["consumer_group"], row["topic"], row["queue_id"], row["queue_offset"])
        for row in rows_of(warehouse, "deliveries")
        if row["outcome"] == "DELIVERED"
    )


def contents(
    warehouse: Warehouse | Path, without: frozenset[str] = frozenset(), names: Iterable[str] = EXCEPT_LEDGER
) -> dict[str, Counter[str]]:
    """The rows of tables, as lines of JSON with their counts."""
    opened = warehouse if isinstance(warehouse, Warehouse) else Warehouse.at(str(warehouse))
    present = (name for name in names if opened.storage.child(_folder(name)).is_folder())
    return {name: _texts(_Stored.of(opened, name), without) for name in present}


def without_runs(warehouse: Warehouse | Path, names: Iterable[str] = EXCEPT_LEDGER) -> dict[str, Counter[str]]:
    """The rows of tables without the names of runs, which are times."""
    return contents(warehouse, RUN_COLUMNS, names)


def _folder(name: str) -> str:
    return "delivery_blocks" if name == "deliveries" else name


@dataclass(frozen=True)
class _Stored:
    """A table in some warehouse: the same as every other that has the same bytes in its files."""

    name: str
    files: tuple[tuple[str | None, bytes], ...]
    warehouse: Warehouse = field(compare=False)

    @classmethod
    def of(cls, warehouse: Warehouse, name: str) -> _Stored:
        folder = warehouse.storage.child(_folder(name))
        files = ((file.broker_name, folder.read(file.path)) for file in files_of(warehouse, name))
        return cls(name, tuple((broker, sha256(content or b"").digest()) for broker, content in files), warehouse)


@lru_cache(maxsize=200)
def _texts(stored: _Stored, without: frozenset[str]) -> Counter[str]:
    """The rows of a table. Tests compare most of their tables with those of the same warehouse, or of copies of it."""
    name = stored.name
    columns = sorted(column for column in columns_of(name) if column not in without)
    batches = batches_of(stored.warehouse, name, Selection(columns=columns))
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    if not tables:
        return Counter()
    rows = pa.concat_tables(tables, promote_options="default")
    fields = [pc.binary_join_element_wise(f"{json.dumps(column)}: ", _json(rows[column]), "") for column in columns]
    return Counter(pc.binary_join_element_wise("{", pc.binary_join_element_wise(*fields, ", "), "}", "").to_pylist())


def _json(column: pa.ChunkedArray) -> pa.StringArray:
    """Each value as JSON: integers and distinct texts at once, since there are millions of values."""
    values = column.combine_chunks()
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        return values.cast(pa.string()).fill_null("null")
    number, distinct = None, values
    if not pa.types.is_nested(values.type):
        encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode(null_encoding="encode")
        number, distinct = encoded.indices, encoded.dictionary
    written = distinct.to_pylist(maps_as_pydicts="strict")
    texts = pa.array([json.dumps(value, sort_keys=True, default=repr) for value in written], pa.string())
    return texts if number is None else texts.take(number).fill_null("null")


def differing(tables: dict[str, Counter[str]], expected: dict[str, Counter[str]]) -> Sequence[str]:
    """A message that lists the differing tables, with one row of each side."""
    return [
        f"{name}: {next(iter((tables[name] - expected[name]).elements()), None)} instead of "
        f"{next(iter((expected[name] - tables[name]).elements()), None)}"
        for name in expected
        if tables.get(name) != expected[name]
    ]


GOOD_EVENT = '{"at": 1, "op": "register", "group": "cg_good", "topic": "OrderEvents", "expression": "paid"}'


def open_to_all(tmp_path: Path) -> None:
    """Lets everybody into a test's folder. Only its owner may enter the folders of pytest and its processes."""
    for folder in (*tmp_path.parents, tmp_path):
        if folder == tmp_path or folder.name.startswith(("pytest-", "popen-")):
            folder.chmod(0o755)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Drops root's rights during a test, since root may read everything."""
    assert callable(night_job.run_job), "is imported by now: nobody may not read it"
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def one_line(error: str) -> bool:
    return error.startswith("mqsieve: ") and error.count("\n") == 1 and error.endswith("\n")


def outcomes(warehouse: Warehouse) -> dict[tuple[str, str], dict[str, Places]]:
    """The places of delivered messages, and of messages that the client dropped, by group and topic."""
    made: dict[tuple[str, str], dict[str, Places]] = {}
    for row in rows_of(warehouse, "deliveries"):
        places = made.setdefault((row["consumer_group"], row["topic"]), {"DELIVERED": [], "DROPPED_BY_CLIENT": []})
        places[row["outcome"]].append((row["queue_id"], row["queue_offset"]))
    return made


def night_on(log: Path, warehouse: Path) -> Warehouse:
    given = arguments("small", warehouse)
    given[given.index("--store") + 1] = str(log)
    nightly.main(given)
    return Warehouse.at(str(warehouse))


@cache
def received_by_night(nights: tuple[int, ...] = NIGHTS) -> Received:
    """Group, topic, queue, offset and night of each received message. The night is the first that can see it."""
    live: Received = Counter()
    for row in rows("nights_dev", "live"):
        night = min(night for night in nights if night >= row["night"])
        live[row["group"], row["topic"], row["queueId"], row["queueOffset"], night] += 1
    return live


def delivered_by_night(warehouse: Path, nights: Iterable[int] = NIGHTS) -> Received:
    """Group, topic, queue, offset and night of each delivery in a warehouse, whose runs are the nights in order."""
    runs = sorted(row["run"] for row in rows_of(warehouse, "run_ledger", "run"))
    night_of = dict(zip(runs, nights, strict=True))
    counts: Received = Counter()
    for row in rows_of(warehouse, "deliveries"):
        if row["outcome"] == "DELIVERED":
            place = row["topic"], row["queue_id"], row["queue_offset"]
            counts[row["consumer_group"], *place, night_of[row["run"]]] += 1
    return counts
