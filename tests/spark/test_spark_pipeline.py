"""The pipeline in Spark SQL computes what the nights of real brokers stored."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from jobs import audit, nightly
from jobs.cli.application import CheckFailed
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.warehouse import Warehouse
from tests.captures import UNDAMAGED, capture
from tests.depth import DEEP
from tests.nights.commands import NIGHTS, night, rows_of
from tests.nights.damage import rewrite


def configuration(folder: Path, capture_name: str, *changed: str) -> Path:
    """A capture's broker.conf with some lines changed, and a brokerName of its own: one warehouse has all brokers."""
    name = " ".join([capture_name, *changed])
    changed = f"brokerName={name}", *changed
    keys = tuple(line.partition("=")[0] for line in changed)
    text = (capture(capture_name) / "broker.conf").read_text("utf-8")
    file = folder / f"{name}.conf"
    file.write_text("\n".join([*changed, *(line for line in text.splitlines() if not line.startswith(keys))]), "utf-8")
    return file


def deliveries(warehouse: Path) -> Counter[tuple[str, str, str]]:
    """The number of deliveries by broker, group and topic."""
    columns = ("broker_name", "consumer_group", "topic")
    return Counter(tuple(row[name] for name in columns) for row in rows_of(warehouse, "deliveries", *columns))


@pytest.mark.usefixtures("spark")
def test_an_audit_computes_all_deliveries_but_those_that_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Groups pop from pop_dev, which writes it down; with the database it forgets, and what they get is planned."""
    folders = [
        (capture(name), configuration(tmp_path, name)) for name in (UNDAMAGED if DEEP else ("small", "otherbloom"))
    ]
    for name, numbers, *changed in (
        ("nights_dev", NIGHTS),
        ("pop_dev", NIGHTS if DEEP else (2,)),
        ("pop_dev", NIGHTS if DEEP else (), "popConsumerKVServiceEnable=true"),
    ):
        config = configuration(tmp_path, name, *changed)
        folders += [(capture(name) / f"night_{number}", config) for number in numbers]
    for folder, config in folders:
        nightly.main(night(tmp_path / "w", folder / "store", folder / "subscription_events.jsonl", config))
    before = deliveries(tmp_path / "w")
    rewrite(Warehouse.at(str(tmp_path / "w")), DELIVERY_BLOCKS, lambda blocks: blocks[1:])
    [(removed, count)] = (before - deliveries(tmp_path / "w")).items()
    capsys.readouterr()
    with pytest.raises(CheckFailed, match=r"audits failed: spark_computes_the_deliveries$"):
        audit.main(["--warehouse", str(tmp_path / "w"), "--engine", "spark", "--json"])
    results = {row["audit"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    entries, delivered = results["spark_computes_the_entries"], results["spark_computes_the_deliveries"]
    assert (entries["severity"], entries["bad_rows"]) == ("ok", 0)
    (difference,) = delivered["sample"]
    assert (delivered["bad_rows"], difference["missing"], difference["unexpected"]) == (1, count, 0)
    assert (difference["broker_name"], difference["consumer_group"], difference["topic"]) == removed
    assert delivered["rows"] > len(before)
