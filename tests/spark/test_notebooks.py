"""Every notebook and README's Python block run, on the warehouse that README's first command makes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from filtering import sql92
from filtering.replay.message_filter import message_filters
from schemas import deliveries
from schemas.delivery_stats import DELIVERY_STATS
from schemas.warehouse import Warehouse
from tests.captures import rows

PROJECT = Path(__file__).parent.parent.parent
NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))
README_WAREHOUSE = '"/tmp/mqsieve"'


def run_code(sources: list[str], warehouse: Warehouse) -> dict[str, Any]:
    """The names that the code has made."""
    names: dict[str, Any] = {}
    assert sum(README_WAREHOUSE in source for source in sources) == 1
    for source in sources:
        exec(source.replace(README_WAREHOUSE, repr(warehouse.location)), names)
    return names


def notebook(name: str, warehouse: Warehouse) -> dict[str, Any]:
    cells = json.loads((PROJECT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return run_code(["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"], warehouse)


def test_notebooks_are_kept_without_outputs() -> None:
    tested = re.findall(r'notebook\("(\w+)"', Path(__file__).read_text(encoding="utf-8"))
    assert sorted(tested) == [file.stem for file in NOTEBOOKS]
    for file in NOTEBOOKS:
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
            assert not cell.get("outputs")
            assert cell.get("execution_count") is None


def test_why_did_my_message_not_arrive(
    spark: SparkSession, replayed: Callable[[str], Warehouse], capsys: pytest.CaptureFixture[str]
) -> None:
    names = notebook("why_did_my_message_not_arrive", replayed("small"))
    group, topic = names["group"], names["topic"]
    printed = capsys.readouterr().out
    assert f"{names['subscription'].expression} | refused: None" in printed
    last = names["verdicts"][-1]
    assert (f"STOPPED {last.filter} - {last.why}" in printed) is not last.passed
    got = deliveries.read(spark, replayed("small")).where(
        (F.col("consumer_group") == group)
        & (F.col("topic") == topic)
        & (F.col("queue_id") == names["queue_id"])
        & (F.col("queue_offset") == names["queue_offset"])
    )
    assert (got.count() == 1) is last.passed
    stats = DELIVERY_STATS.read(spark, replayed("small")).where(f"consumer_group = '{group}' AND topic = '{topic}'")
    sums = stats.agg(*(F.sum(c) for c in ("scanned", "passed_stage1", "passed_stage2", "delivered"))).first()
    assert sums is not None
    scanned, stage1, stage2, delivered = sums
    assert 0 < delivered < stage1 < scanned
    assert names["stopped_by"] == Counter(
        {
            "stage 1: filter bit map": scanned - stage1,
            "stage 2: expression": stage1 - stage2,
            "delivered": delivered,
        }
    )
    assert message_filters([names["subscription"]], names["broker"]) == [names["message_filter"]]


def test_what_would_a_new_expression_deliver(
    replayed: Callable[[str], Warehouse], capsys: pytest.CaptureFixture[str]
) -> None:
    names = notebook("what_would_a_new_expression_deliver", replayed("small"))
    messages = [
        (row["queueId"], row["queueOffset"], row["properties"] or {})
        for row in rows("small", "messages")
        if not row.get("blank") and row["topic"] == "OrderEvents"
    ]
    old, new, mended = (
        {(queue_id, offset) for queue_id, offset, properties in messages if delivers(names[name], properties)}
        for name in ("old", "new", "mended")
    )
    assert names["counts"].asDict() == {
        "old": len(old), "new": len(new), "gained": len(new - old), "lost": len(old - new),
    }  # fmt: skip
    assert len(old - new) > 0
    assert names["mended_counts"].asDict() == {"gained": len(mended - old), "lost": len(old - mended)}
    printed = capsys.readouterr().out
    assert "integer-literal at 6: Compared with the integer 10, a price like '55.10' is an error" in printed
    assert "hangzhou" in printed


def delivers(compiled: sql92.CompiledExpression, properties: dict[str, str]) -> bool:
    try:
        return compiled.evaluate(properties) is True
    except sql92.EvaluationError:
        return False


def test_is_the_filter_bit_map_worth_it(
    replayed: Callable[[str], Warehouse], capsys: pytest.CaptureFixture[str]
) -> None:
    names = notebook("is_the_filter_bit_map_worth_it", replayed("small"))
    queues = {
        (row["group"], row["topic"]): row["queues"].values()
        for row in rows("small", "cqfilter")
        if row["topic"] == "OrderEvents"
    }
    worth = {(row["consumer_group"], row["topic"]): row for row in names["worth"].collect()}
    for group in ("cg_sql_region_price", "cg_sql_city", "cg_sql_qty_between"):
        counts = queues[group, "OrderEvents"]
        skipped = sum(queue["scanned"] - queue["cqPass"] for queue in counts)
        false_positives = sum(queue["cqPass"] - queue["matched"] for queue in counts) if skipped else 0
        row = worth[group, "OrderEvents"]
        assert (row["skipped"], row["false_positives"]) == (skipped, false_positives), group
    scanned, skipped, false_positives = names["whole"]
    assert 0 < false_positives < skipped < scanned
    assert f"skipped {skipped / scanned:.0%} of {scanned:,} messages" in capsys.readouterr().out
    with_bit_map, without = names["cost"]["with bit map"], names["cost"]["without"]
    assert (
        with_bit_map["found"]
        == without["found"]
        == sum(q["matched"] for q in queues["cg_sql_region_price", "OrderEvents"])
    )
    assert with_bit_map["read"] == sum(q["cqPass"] for q in queues["cg_sql_region_price", "OrderEvents"])
    assert without["read"] == sum(q["scanned"] for q in queues["cg_sql_region_price", "OrderEvents"])
    assert with_bit_map["pulls"] <= without["pulls"]


def test_readmes_python(
    replayed: Callable[[str], Warehouse], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    (block,) = re.findall(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    run_code([block], replayed("small"))
    printed = capsys.readouterr().out
    assert re.search(r"\| *cg_\S+\| *DELIVERED\| *\d+\|", printed)
    assert printed.partition("commitlog_offset")[2].count("OrderEvents") > 5
