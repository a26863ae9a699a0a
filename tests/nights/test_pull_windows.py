"""pull_windows: the windows that nights planned, and what later nights do with them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from filtering.delivery.pull_window import Reason
from jobs import audit, explain, nightly, replay
from schemas.delta.warehouse import Warehouse
from schemas.run_ledger import LedgerEntry
from tests.nights.commands import NIGHTS, Run, differing, living, rows_of, without_runs
from tests.nights.damage import rewrite_ledger
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, damage_magic, event, night_of_a_slow_group, sql

ALL = "n IS NOT NULL"
COLUMNS = ("kind", "reason", "available_at", "stored_from", "stored_to")


def windows(broker: GrowingBroker, *columns: str, warehouse: str = "w") -> list[tuple[Any, ...]]:
    """The windows in the order of the runs; ``columns``: of each."""
    rows = sorted(rows_of(broker.folder / warehouse, "pull_windows"), key=lambda row: row["run"])
    return [tuple(row[name] for name in columns or COLUMNS) for row in rows]


def queues(broker: GrowingBroker, kind: str) -> list[Any]:
    rows = sorted(rows_of(broker.folder / "w", "pull_windows"), key=lambda row: row["run"])
    return [
        [(queue["queue_id"], queue["from_queue_offset"], queue["to_queue_offset"]) for queue in row["queues"] or ()]
        for row in rows
        if row["kind"] == kind
    ]


def test_a_group_that_starts_changes_leaves_and_returns(broker: GrowingBroker) -> None:
    events = [sql(after(1), "cg", ALL), sql(after(3), "cg", "n < 5"), event(after(6), "unregister", "cg")]
    broker.night(events)
    broker.grow()
    broker.night([*events, sql(after(14), "cg", ALL)])
    started, changed, left, returned = after(1), after(3), after(6), after(14)
    assert windows(broker) == [
        ("online", "first start", None, started, changed),
        ("online", "subscription changed", None, changed, left),
        ("backlog", "first start: consume_from first", started, None, started),
        ("uncertain", "the broker may have held a pull when the subscription changed", None, changed - 5000, changed),
        ("uncertain", Reason.IN_FLIGHT, None, left - 5000, left),
        ("online", "returned", None, returned, None),
        ("backlog", "returned", returned, None, returned),
        ("uncertain", Reason.LEFT_PULL, None, left - 20_000, left),
    ]
    assert queues(broker, "backlog") == [[], [(0, 6, None)]]
    assert broker.passes_audits()


def test_an_offset_reset_of_a_group_that_is_away(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", ALL), event(after(6), "unregister", "cg")]
    reset = event(after(8), "reset_offset", "cg", queue_id=0, offset=3)
    broker.night([*events, reset, sql(after(9), "cg", ALL)])
    assert ("reset", "reset by an operator", after(9), None, after(9)) in windows(broker)
    assert queues(broker, "reset") == [[(0, 3, None)]]
    assert broker.received("cg") == sorted([*range(10), 3, 4, 5])
    assert broker.passes_audits()


def test_a_group_that_did_not_keep_up(broker: GrowingBroker) -> None:
    """Its committed offset ends the window of the night, and begins that of the next one."""
    events = [sql(BEFORE, "cg", ALL)]
    night_of_a_slow_group(broker, events, committed=4)
    assert queues(broker, "online") == [[(0, 0, 4)]]
    broker.grow()
    night_of_a_slow_group(broker, events, committed=20)
    assert ("backlog", "was behind when the night began", None, None, None) in windows(broker)
    assert queues(broker, "backlog") == [[(0, 0, 4)], [(0, 4, 10)]]
    assert broker.received("cg") == list(range(20))
    assert broker.passes_audits()


def test_a_late_message_has_the_window_of_its_night(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", ALL), event(after(3), "unregister", "cg"), sql(after(7), "cg", "n > 4")]
    damage_magic(broker)
    broker.night(events)
    broker.grow()
    broker.night(events)
    late = [row for row in windows(broker) if row[0] == "late"]
    assert ("late", "returned", after(7), after(3), after(7)) in late
    [row] = [row for row in rows_of(broker.folder / "w", "deliveries") if row["queue_offset"] == 5]
    assert row["available_at"] == after(7)
    assert broker.passes_audits()


def test_an_audit_names_a_delivery_without_a_window(broker: GrowingBroker, run: Run) -> None:
    broker.night([sql(BEFORE, "cg", ALL)])
    shutil.rmtree(broker.folder / "w" / "pull_windows")
    assert "pull_windows is missing" in run(audit, "--warehouse", broker.folder / "w").error


def test_nights_of_an_older_mqsieve_are_planned_once(run: Run, four_nights: Path, tmp_path: Path) -> None:
    """Without its table, a warehouse is as an older mqsieve left it, but for its ledger."""
    warehouse = tmp_path / "w"
    for night in NIGHTS:
        if night == 3:
            forget_windows(warehouse)
        assert run(nightly, *living(night, warehouse)).code == 0
    assert differing(without_runs(warehouse), without_runs(four_nights)) == []
    assert run(audit, "--warehouse", warehouse, "--all").code == 0


def test_nights_of_an_older_mqsieve_are_planned_by_a_night_without_anything_new(
    broker: GrowingBroker, run: Run
) -> None:
    events = [sql(BEFORE, "cg", ALL)]
    broker.night(events)
    planned = windows(broker)
    forget_windows(broker.folder / "w")
    asked = run(explain, "--warehouse", broker.folder / "w", "--topic", "T", "--queue", 0, "--offset", 1)
    older = f"{broker.folder / 'w'} was written by an older mqsieve, which stored no pull_windows"
    assert (asked.code, asked.error) == (2, f"mqsieve: {older}: the next nightly adds them\n")
    skipped = run(audit, "--warehouse", broker.folder / "w").out
    assert "deliveries_in_windows          skipped" in skipped
    broker.night(events)
    assert windows(broker)[: len(planned)] == planned
    assert "There was nothing new" in broker.night(events).out
    assert broker.passes_audits()


def forget_windows(folder: Path) -> None:
    """Removes pull_windows, and what the ledger says of it."""

    def without(entry: LedgerEntry) -> LedgerEntry:
        rows = {name: count for name, count in entry.rows.items() if name != "pull_windows"}
        tables = {name: state for name, state in entry.tables.items() if name != "pull_windows"}
        return replace(entry, rows=rows, tables=tables)

    shutil.rmtree(folder / "pull_windows")
    rewrite_ledger(Warehouse.at(str(folder)), lambda entries: [without(entry) for entry in entries])


def entries(warehouse: Path) -> Counter[tuple[str, int]]:
    """The entries of each queue, as nights counted them."""
    counts: Counter[tuple[str, int]] = Counter()
    for row in rows_of(warehouse, "queue_progress", "topic", "queue_id", "entries"):
        counts[row["topic"], row["queue_id"]] += row["entries"]
    return counts


def test_a_replay_has_windows_and_the_entries_of_all_nights(run: Run, four_nights: Path, tmp_path: Path) -> None:
    assert run(replay, "--warehouse", four_nights, "--into", tmp_path / "r").code == 0
    rows = list(rows_of(tmp_path / "r", "pull_windows", "kind", "reason"))
    assert {(row["kind"], row["reason"]) for row in rows} == {("backlog", "a replay")}
    assert entries(tmp_path / "r") == entries(four_nights)
    assert run(audit, "--warehouse", tmp_path / "r", "--all").code == 0


def test_a_repeated_night_has_late_messages_of_a_night_of_an_older_mqsieve(broker: GrowingBroker) -> None:
    """The second night reads a message of the first one, and is repeated by the first night of this version."""
    events = [sql(BEFORE, "cg", ALL)]
    damage_magic(broker)
    broker.night(events)
    broker.grow()
    broker.night(events)
    forget_windows(broker.folder / "w")
    assert broker.night(events, "--redo-from", after(15)).code == 0
    assert broker.received("cg") == list(range(20))
    assert broker.passes_audits()


def test_explain_says_which_messages_a_held_pull_may_have_had(broker: GrowingBroker) -> None:
    """For 5 s before SQL92 changes, and for 20 s after tags change, unless the group leaves."""
    broker.log.append(20)
    broker.log.write(broker.folder / "store")

    def tags(at: int, group: str, expression: str) -> str:
        return event(at, "register", group, type="TAG", expression=expression)

    broker.night(
        [
            sql(BEFORE, "sql", "n = '99'"), tags(BEFORE, "stays", "none"), tags(BEFORE, "leaves", "none"),
            tags(after(3), "stays", "*"), tags(after(3), "leaves", "*"),
            event(after(5), "unregister", "leaves"), tags(after(6), "leaves", "*"), sql(after(20), "sql", ALL),
        ]
    )  # fmt: skip
    given = ("--warehouse", broker.folder / "w", "--topic", "T", "--queue", 0, "--json", "--offset")
    before, later = "s before the subscription changed", "s after the subscription changed"
    for group, at, expected in (
        ("sql", 14, None), ("sql", 15, before), ("sql", 20, None), ("stays", 3, later), ("stays", 22, later),
        ("stays", 23, None), ("leaves", 4, later), ("leaves", 10, None),
    ):  # fmt: skip
        uncertain = json.loads(broker.run(explain, *given, at, "--group", group).out)["uncertain"]
        assert (uncertain is not None and expected is not None and expected in uncertain) or uncertain is expected, at
