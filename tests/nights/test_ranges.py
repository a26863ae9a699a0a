"""Ranges of the log: the tables are the same wherever they begin, even inside the same record."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import nightly
from jobs.night import log as log_plan
from tests.broker_log import BrokerLog
from tests.nights.commands import Run, differing, without_runs

BODIES = (50, 9_000, 50, 50, 20_000, 50, 13_000, 50)
"""Bytes. A log of a few of these fills a segment."""


@pytest.mark.parametrize("damaged", [(), (2,), (5, 7, 13), (1, 4, 6, 14), (23,)])
def test_ranges_smaller_than_records(
    damaged: tuple[int, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = BrokerLog(segment=1 << 16)
    for size in BODIES * 3:
        log.append(body=b"x" * size)
    for number in damaged:
        log.damage(number)
    log.write(tmp_path / "store")
    (tmp_path / "s.yaml").write_text("- {group: cg, topic: T, sql: n <> '3'}")

    def night(range_bytes: int) -> Path:
        monkeypatch.setattr(log_plan, "RANGE_BYTES", range_bytes)
        warehouse = tmp_path / str(range_bytes)
        given = ("--store", tmp_path / "store", "--subscriptions", tmp_path / "s.yaml", "--warehouse", warehouse)
        assert run(nightly, *given).code == 0
        return warehouse

    expected = without_runs(night(1 << 30))
    assert sum(expected["quarantine"].values()) == len(damaged)
    assert {size: differing(without_runs(night(size)), expected) for size in (700, 3_000, 8_000)} == {
        700: [], 3_000: [], 8_000: [],
    }  # fmt: skip
