"""A small broker with two nights: messages, damage, an invalid event line, and committed offsets."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from tests.broker_log import BROKER_CONF, BrokerLog
from tests.nights.commands import differing, night, without_runs

EVENTS = """\
{"at": 1, "op": "register", "group": "cg_all", "topic": "T", "expression": "*", "consume_from": "first"}
{"at": 1, "op": "register", "group": "cg_low", "topic": "T", "type": "SQL92", "expression": "n < 5"}
{"at": 1, "op": "register", "group": "cg_few", "topic": "T", "type": "SQL92", "expression": "n IN ('3', '11', '12')"}
this is no event
"""
NIGHTS = (1, 2)
FIRST_NIGHT = 10
MESSAGES = 14
DAMAGED = 4
"""The number of the message whose record is damaged."""

Contents = dict[str, Counter[str]]


class FaultyBroker:
    """The broker's inputs in ``folder``, as ``night_1`` and ``night_2``, and its warehouses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warehouse = folder / "w"
        log = BrokerLog().append(FIRST_NIGHT)
        log.damage(DAMAGED)
        self._write(1, log)
        log.append(MESSAGES - FIRST_NIGHT).append(2, topic="U")
        self._write(2, log)

    def _write(self, number: int, log: BrokerLog) -> None:
        folder = self.folder / f"night_{number}"
        log.write(folder / "store")
        (folder / "store" / "config").mkdir()
        committed = f'{{"T@cg_all": {{0: {number * 5}}}}}'
        offsets = f'{{"offsetTable": {committed}, "dataVersion": {{"timestamp": {log.time}}}}}'
        (folder / "store" / "config" / "consumerOffset.json").write_text(offsets)
        (folder / "events.jsonl").write_text(EVENTS)
        (folder / "broker.conf").write_text(BROKER_CONF)

    def store(self, number: int) -> Path:
        return self.folder / f"night_{number}" / "store"

    def arguments(self, number: int, *more: object, warehouse: Path | None = None) -> list[str]:
        """The command line of a night."""
        folder = self.folder / f"night_{number}"
        into = self.warehouse if warehouse is None else warehouse
        return night(into, folder / "store", folder / "events.jsonl", folder / "broker.conf", *more)

    def kept(self, number: int) -> Path:
        """The folder with a copy of the warehouse after a night; 0: before the first night."""
        return self.folder / f"after_{number}"

    def start_from(self, other: FaultyBroker, number: int) -> None:
        """Replaces the warehouse by another broker's after a night."""
        shutil.rmtree(self.warehouse, ignore_errors=True)
        if number:
            shutil.copytree(other.kept(number), self.warehouse)

    def contents(self) -> Contents:
        return without_runs(self.warehouse)

    def assert_same(self, expected: Contents, what: Any = "") -> None:
        """Asserts that the tables are those of an undisturbed run."""
        tables = self.contents()
        assert tables.keys() == expected.keys(), what
        assert tables == expected, (what, differing(tables, expected))
