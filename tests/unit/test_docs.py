"""The files and folders that the documentation names exist."""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path

import pyarrow as pa
import pytest

from answers.attention import CONDITIONS
from schemas.tables import TABLES, TIMES

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PATH = re.compile(r"`((?:jobs|answers|schemas|filtering|conf|tests|benchmarks|notebooks|docs)/[\w./-]*)`")
MODULE = re.compile(r"`(\w+\.py)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_a_page_exist(page: Path) -> None:
    text = page.read_text()
    missing = [name for name in PATH.findall(text) if not (ROOT / name).exists()]
    missing += [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    missing += [name for name in MODULE.findall(text) if not any(ROOT.glob(f"*/**/{name}"))]
    assert not missing


def test_the_map_names_every_room() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    rooms = [
        path.parent
        for base in ("filtering", "schemas", "answers", "jobs")
        for path in ROOT.glob(f"{base}/*/__init__.py")
    ]
    unnamed = [room.name for room in rooms if f"`{room.relative_to(ROOT)}/`" not in text]
    assert not unnamed


def test_the_map_of_a_night_names_every_module() -> None:
    map_ = (
        (ROOT / "docs" / "ARCHITECTURE.md").read_text().partition("## The modules of a night")[2].partition("\n## ")[0]
    )
    night = ROOT / "jobs" / "night"
    rows = [line.split("|") for line in map_.splitlines() if line.startswith("| ")][1:]
    described = {(name.strip(" `/"), module) for _, name, _, text, _ in rows for module in re.findall(r"`(\w+)`", text)}
    assert described == {
        (path.parent.name if path.parent != night else "", path.stem) for path in night.rglob("[a-z]*.py")
    }


def test_the_reference_of_tables_is_that_of_the_schemas() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))["page"]
    assert (ROOT / "docs" / "TABLES.md").read_text() == page()


def test_the_reference_of_python_is_that_of_the_docstrings() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_api.py"))["page"]
    assert (ROOT / "docs" / "API.md").read_text() == page()


def test_the_site_has_every_page() -> None:
    site = (ROOT / "conf" / "mkdocs.yml").read_text()
    assert [page.name for page in ROOT.glob("docs/*.md") if f": {page.name}\n" not in site] == []


def test_every_time_is_a_timestamp_to_readers() -> None:
    """What its comment calls a time."""
    is_time = re.compile(r"since the epoch|^(when|time)\b|store_timestamp")
    fields = [field for table in TABLES for field in table.schema if field.type == pa.int64()]
    times = {field.name for field in fields if is_time.search((field.metadata or {}).get(b"comment", b"").decode())}
    assert len(times) > 20
    assert times <= TIMES


def test_the_conditions_are_those_of_the_code() -> None:
    rows = [f"| `{code}` | {severity} | {meaning} |" for code, (severity, meaning) in CONDITIONS.items()]
    text = (ROOT / "docs" / "OPERATIONS.md").read_text()
    assert "| condition | severity | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n\n" in text


@pytest.mark.parametrize(
    ("module", "constant"),
    [
        ("filtering.sql92.parser", "LONGEST"),
        ("schemas.yaml_input", "LARGEST"),
        ("schemas.yaml_input", "DEEPEST"),
        ("filtering.subscriptions.events", "LONGEST_LINE"),
        ("filtering.broker_config", "LONGEST_LINE"),
        ("filtering.broker_config", "MOST_CONSUMERS"),
        ("schemas.subscription_files", "LARGEST_FILE"),
        ("schemas.rocketmq_store.config_files", "LARGEST"),
        ("schemas.rocketmq_store.config_files", "MOST_QUEUES"),
        ("schemas.rocketmq_store.record_layout", "GREATEST_QUEUE_OFFSET"),
        ("answers.pulls", "MOST_MISSING"),
        ("jobs.night.log", "COMPARED_DAMAGE"),
        ("schemas.spark_tasks", "SPARK_FROM_BYTES"),
        ("schemas.spark_tasks", "NEW_SESSION_FROM_BYTES"),
        ("jobs.night.commit", "FILES_IN_A_TIER"),
        ("jobs.night.commit", "MOST_BYTES"),
    ],
)
def test_the_limits_are_those_of_the_code(module: str, constant: str) -> None:
    path = module.replace(".", "/") + ".py"
    (line,) = [
        line
        for line in (ROOT / "docs" / "OPERATIONS.md").read_text().splitlines()
        if f"| `{path}` " in line and constant in re.split(r"[ ,|]+", line)
    ]
    assert f"{getattr(importlib.import_module(module), constant):,}" in line
