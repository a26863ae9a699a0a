"""A flipped bit in a data file whose values can still be decoded: only the checksum of its page shows it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from jobs import audit, explain, export, lag, lint, maintain, nightly, pulls, report, what_if
from schemas.run_ledger import RUN_LEDGER
from schemas.tables import CONSUMPTIONS, POP_RECORDS, POPS, REBUILT_TABLES, TABLES
from tests.faults.flips import flip, readable_flips
from tests.faults.stores import FaultyBroker
from tests.nights.commands import Run, differing, without_runs

WITHOUT_ROWS = (POP_RECORDS, POPS, CONSUMPTIONS)
"""No group of this broker pops, and no client writes traces."""
NAMES = [table.name for table in (*TABLES, RUN_LEDGER) if table not in WITHOUT_ROWS]
REBUILT = [table.name for table in REBUILT_TABLES if table not in WITHOUT_ROWS]
ANSWERS: dict[str, tuple[ModuleType, tuple[object, ...]]] = {
    "explain": (explain, ("--topic", "T", "--queue", 0, "--offset", 3, "--group", "cg_few", "--full")),
    "lag": (lag, ()),
    "lint": (lint, ()),
    "pulls": (pulls, ("--group", "cg_few", "--topic", "T")),
    "what-if": (what_if, ("--group", "cg_few", "--topic", "T", "--sql", "n = '3'")),
    "report": (report, ("--output", "-")),
    "deliveries": (export, ("deliveries", "--output", "-")),
}


def assert_named(text: str, file: Path, warehouse: Path) -> None:
    """One line names the file and the command that goes on."""
    (line,) = [line for line in text.splitlines() if file.name in line]
    if file.parent.name == "run_ledger":
        assert "put it back from a copy" in line
    else:
        assert f"./spark-submit.sh maintain --rebuild --warehouse {warehouse}" in line


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("more", [(), ("--all",)], ids=["new nights", "all nights"])
def test_audit_names_the_file(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, name: str, more: tuple[str, ...]
) -> None:
    """The first file is of the first night, which an earlier audit has passed."""
    broker.start_from(undisturbed, 1)
    run(audit, "--warehouse", broker.warehouse)
    assert run(nightly, *broker.arguments(2)).code == 0
    file = flip(broker.warehouse, name)
    ended = run(audit, "--warehouse", broker.warehouse, *more)
    reads_new_rows_only = name in (
        "commitlog", "consumequeue", "delivery_blocks", "pull_windows", "quarantine", "subscription_events",
    )  # fmt: skip
    if reads_new_rows_only and not more and file.name not in ended.out + ended.error:
        assert (ended.code, ended.error) == (0, "")
        return
    assert ended.code in (2, 3)
    assert_named(ended.out + ended.error, file, broker.warehouse)


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_the_same_or_refused(run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, name: str) -> None:
    broker.start_from(undisturbed, 2)
    expected = {ask: run(job, "--warehouse", broker.warehouse, *more) for ask, (job, more) in ANSWERS.items()}
    assert {ended.code for ended in expected.values()} == {0}
    file = flip(broker.warehouse, name)
    for ask, (job, more) in ANSWERS.items():
        ended = run(job, "--warehouse", broker.warehouse, *more)
        if ended != expected[ask]:
            assert (ended.code, ended.out, ended.error.count("\n")) == (2, "", 1), ask
            assert_named(ended.error, file, broker.warehouse)


def test_explain_is_the_same_or_refused_for_every_bit_of_the_deliveries(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker
) -> None:
    broker.start_from(undisturbed, 1)
    job, more = ANSWERS["explain"]
    expected = run(job, "--warehouse", broker.warehouse, *more)
    (file,) = (broker.warehouse / "delivery_blocks").glob("*.parquet")
    refused = 0
    for flipped in list(readable_flips(file)):
        file.write_bytes(flipped)
        ended = run(job, "--warehouse", broker.warehouse, *more)
        if ended != expected:
            assert_named(ended.error, file, broker.warehouse)
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("name", NAMES)
def test_a_night_is_undisturbed_or_refused_and_a_rebuild_mends_it(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, name: str
) -> None:
    broker.start_from(undisturbed, 1)
    file = flip(broker.warehouse, name)
    ended = run(nightly, *broker.arguments(2))
    if ended.code:
        assert ended.code == 2
        assert_named(ended.error, file, broker.warehouse)
    rebuilt = run(maintain, "--rebuild", "--warehouse", broker.warehouse)
    if name in REBUILT:
        assert rebuilt.code == 0, rebuilt.error
    elif file.exists():
        assert (rebuilt.code, rebuilt.error.count("\n")) == (2, 1)
        assert file.name in rebuilt.error
        assert "from a copy" in rebuilt.error
        shutil.copy(undisturbed.kept(1) / name / file.name, file)
    assert run(nightly, *broker.arguments(2)).code == 0
    broker.assert_same(without_runs(undisturbed.kept(2)))


def test_a_query_of_an_audit_never_reads_a_damaged_file(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker
) -> None:
    """DataFusion does not verify checksums: no other audit may pass or fail on what it reads there."""
    broker.start_from(undisturbed, 2)
    flip(broker.warehouse, "delivery_stats", "delivered")
    lines = run(audit, "--warehouse", broker.warehouse).out.splitlines()
    assert any(line.startswith("conservation ") and "not counted: page_checksums failed" in line for line in lines)
    assert lines[-1].endswith(" 0 ok, 0 skipped, 0 warn, 1 error, 35 not counted")


@pytest.mark.parametrize("name", ["consumequeue", "commitlog"])
def test_statistics_of_a_delta_log_that_are_not_those_of_the_file(
    run: Run, broker: FaultyBroker, undisturbed: FaultyBroker, name: str
) -> None:
    """Readers would skip the file."""
    broker.start_from(undisturbed, 2)
    commit = max((broker.warehouse / name / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    (add,) = [action["add"] for action in actions if "add" in action]
    statistics = json.loads(add["stats"])
    statistics["maxValues"]["store_timestamp"] -= 1
    add["stats"] = json.dumps(statistics)
    commit.write_text("\n".join(map(json.dumps, actions)))
    ended = run(audit, "--warehouse", broker.warehouse)
    assert ended.code in (2, 3)
    assert "the Delta log has other statistics of it" in ended.out + ended.error
    assert_named(ended.out + ended.error, broker.warehouse / name / add["path"], broker.warehouse)
    mended = run(maintain, "--rebuild", "--warehouse", broker.warehouse)
    if name == "commitlog":
        assert (mended.code, "or from a copy" in mended.error) == (2, True)
    else:
        assert mended.code == 0, mended.error
        assert differing(broker.contents(), without_runs(undisturbed.kept(2))) == []
        assert run(audit, "--warehouse", broker.warehouse, "--all").code == 0


def test_results_of_audits_are_no_facts(run: Run, broker: FaultyBroker, undisturbed: FaultyBroker) -> None:
    broker.start_from(undisturbed, 2)
    run(audit, "--warehouse", broker.warehouse)
    file = flip(broker.warehouse, "quality_results")
    ended = run(audit, "--warehouse", broker.warehouse)
    assert (ended.code, ended.error.count("\n")) == (2, 1)
    assert file.name in ended.error
    assert f"delete {file.parent}" in ended.error
    shutil.rmtree(file.parent)
    assert run(audit, "--warehouse", broker.warehouse).code in (0, 3)
