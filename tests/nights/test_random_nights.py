"""However the runs of random nights are divided and repeated, the tables are those of one nightly run a night."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from jobs import audit, deliver, dispatch, ingest, maintain, nightly, register
from tests.broker_log import EVERY, FIRST_TIME
from tests.depth import examples
from tests.nights.commands import Run, differing, rows_of, without_runs
from tests.nights.consumption_model import Model
from tests.nights.random_broker import RandomBroker, Trouble

NIGHTS = 4
UNLIKE = (Trouble.CUTS, Trouble.DAMAGES, Trouble.DELETES, Trouble.RECREATES, Trouble.EXPIRES)
RUN_TABLES = ("delivery_stats", "pull_windows")
"""A redo may be one run more, which plans its windows and counts what is pending."""
NIGHT_TABLES = (*RUN_TABLES, "queue_progress", "consumer_offsets")
"""A redo counts a recovered message in the night that had found it damaged."""
MODELLED = (Trouble.NONE, Trouble.DELETES, Trouble.RECREATES, Trouble.EXPIRES)
RECEIVED = ("consumer_group", "topic", "queue_id", "queue_offset", "available_at")


class Warehouse:
    """A warehouse, and several ways to run a night on it."""

    def __init__(self, run: Run, broker: RandomBroker, folder: Path) -> None:
        self._run, self._broker, self.folder = run, broker, folder
        self._given = ("--warehouse", folder, "--broker-config", broker.config)
        self.was_redone = False

    def nightly(self, *more: object) -> None:
        inputs = ("--store", self._broker.store, "--subscriptions", self._broker.events)
        self._check(nightly, *self._given, *inputs, *more)

    def prepare(self, step: str) -> None:
        if step == "ingest":
            self._check(ingest, *self._given, "--store", self._broker.store)
        elif step == "register":
            self._check(register, *self._given, "--subscriptions", self._broker.events)
        else:
            self._check(dispatch, *self._given)

    def in_steps(self, rng: random.Random) -> None:
        order = rng.choice(
            (("ingest", "register", "dispatch"), ("register", "ingest", "dispatch"), ("ingest", "dispatch", "register"))
        )
        for step in order:
            self.prepare(step)
        self._check(deliver, *self._given)

    def prepared(self, rng: random.Random) -> None:
        for step in ("ingest", "dispatch", "register")[: rng.randint(1, 3)]:
            self.prepare(step)
        self.nightly()

    def repeated(self, rng: random.Random) -> None:
        self.nightly()
        self.nightly("--redo-from", rng.choice((0, FIRST_TIME + rng.randint(0, 60) * EVERY)))
        self.was_redone = True

    def rebuilt(self, rng: random.Random) -> None:
        self.nightly()
        file = next((self.folder / "consumequeue").rglob("*.parquet"), None)
        if file is not None:
            file.unlink()
            self._check(maintain, "--warehouse", self.folder, "--rebuild")
            self.was_redone = True

    def facts(self) -> dict[str, Counter[str]]:
        return without_runs(self.folder)

    def audit(self) -> None:
        self._check(audit, "--warehouse", self.folder, "--all")

    def _check(self, *arguments: object) -> None:
        ended = self._run(*arguments)
        assert ended.code == 0, ended


@pytest.mark.parametrize("trouble", UNLIKE, ids=lambda each: each.value)
@pytest.mark.parametrize("seed", range(examples(1, 3)))
def test_every_way_to_run_nights_leaves_the_same_tables(run: Run, tmp_path: Path, seed: int, trouble: Trouble) -> None:
    rng = random.Random(seed)
    broker = RandomBroker(seed, tmp_path)
    plain, other = (Warehouse(run, broker, tmp_path / name) for name in ("plain", "other"))
    for _ in range(NIGHTS):
        broker.next_night(trouble)
        plain.nightly()
        rng.choice((other.in_steps, other.prepared, other.repeated, other.rebuilt))(rng)
        tables, expected = other.facts(), plain.facts()
        unlike = (NIGHT_TABLES if trouble is Trouble.DAMAGES else RUN_TABLES) if other.was_redone else ()
        assert differing(tables, {name: rows for name, rows in expected.items() if name not in unlike}) == []
        if trouble is not Trouble.DAMAGES:
            assert [name for name in RUN_TABLES if expected.get(name, Counter()) - tables.get(name, Counter())] == []
    if trouble is not Trouble.DAMAGES:
        other.audit()


@pytest.mark.parametrize("trouble", MODELLED, ids=lambda each: each.value)
@pytest.mark.parametrize("seed", range(100, 100 + examples(2, 8)))
def test_groups_receive_what_a_slow_model_says(run: Run, tmp_path: Path, seed: int, trouble: Trouble) -> None:
    broker, model = RandomBroker(seed, tmp_path), Model()
    broker.has_queues = True
    warehouse = Warehouse(run, broker, tmp_path / "w")
    for _ in range(NIGHTS):
        model.night(*broker.next_night(trouble))
        warehouse.nightly()
        rows = rows_of(warehouse.folder, "deliveries", *RECEIVED)
        expected = Counter(each[: len(RECEIVED)] for each in model.pulls if each.matches)
        assert Counter(tuple(row[name] for name in RECEIVED) for row in rows) == expected
