"""DuckDB, DataFusion and PostgreSQL on the broker's cases: the SQL is true where the broker delivers, or is refused.

PostgreSQL is asked where it is installed.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from filtering.sql92 import CompiledExpression, compile
from tests.depth import DEEP
from tests.unit.sql92.cases import compiled, expressions

Run: TypeAlias = Callable[[Sequence[dict[str, str]], Sequence[str]], list[list[bool | None]]]

A_QUERY = 100
REFUSED = re.compile(r"(?![0-9])\d|0[xX].*[pP]")
"""Texts that an engine may refuse: digits beyond ASCII, and hexadecimal doubles."""
REFUSED_BY_POSTGRES = re.compile(rf"{REFUSED.pattern}|[eE][+-]?\d{{3}}|\d{{300}}|\x00")
"""It also refuses doubles out of range, and U+0000. It reads most hexadecimal doubles."""
MOST_REFUSED = 0.05


def in_duckdb(messages: Sequence[dict[str, str]], predicates: Sequence[str]) -> list[list[bool | None]]:
    with duckdb.connect() as connection:
        connection.register("messages", table(messages))
        connection.execute(query(predicates))
        return [list(column) for column in zip(*connection.fetchall(), strict=True)][1:]


def in_datafusion(
    folder: Path, messages: Sequence[dict[str, str]], predicates: Sequence[str]
) -> list[list[bool | None]]:
    write_deltalake(folder, table(messages), mode="overwrite")
    engine = QueryBuilder()
    engine.register("messages", DeltaTable(folder))
    return [column.to_pylist() for column in pa.table(engine.execute(query(predicates)).read_all()).columns][1:]


class Postgres:
    """A server of its own, until the end of the block. PostgreSQL refuses to run as root."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._owner = "postgres" if os.geteuid() == 0 else None

    def __enter__(self) -> Postgres:
        self._folder = tempfile.TemporaryDirectory(prefix="mqsieve")  # a socket's path must be short
        if self._owner:
            shutil.chown(self._folder.name, self._owner)
        self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        self._run("pg_ctl", "start", "--wait", f"--options=-c listen_addresses='' -k {self._folder.name}")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("pg_ctl", "stop", "--mode=immediate")
        self._folder.cleanup()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), f"--pgdata={self._folder.name}/data", *arguments]
        null = subprocess.DEVNULL
        subprocess.run(command, check=True, cwd=self._folder.name, user=self._owner, stdout=null, stderr=null)

    def answers(self, messages: Sequence[dict[str, str]], predicates: Sequence[str]) -> list[list[bool | None]]:
        given = io.StringIO()
        csv.writer(given, lineterminator="\n").writerows(
            (row, json.dumps(message, ensure_ascii=False)) for row, message in enumerate(messages)
        )
        script = (
            "CREATE TEMP TABLE messages (row bigint, properties json);\n"
            f"COPY messages FROM STDIN (FORMAT csv);\n{given.getvalue()}\\.\n"
            f"COPY ({query(predicates)}) TO STDOUT (FORMAT csv);\n"
        )
        psql = str(self._programs / "psql")
        command = [psql, "-XqU", "postgres", "-h", self._folder.name, "-v", "ON_ERROR_STOP=1"]
        asked = subprocess.run(command, input=script.encode(), capture_output=True, check=False)
        if asked.returncode:
            raise ValueError(asked.stderr.decode())
        rows = csv.reader(io.StringIO(asked.stdout.decode()))
        return [[{"t": True, "f": False}.get(value) for value in column] for column in zip(*rows, strict=True)][1:]


def postgres_programs() -> Path | None:
    """The folder of PostgreSQL's programs, which Debian does not put into PATH. None where it cannot run."""
    if os.geteuid() == 0 and "postgres" not in {user.pw_name for user in pwd.getpwall()}:
        return None
    programs = [*map(Path, filter(None, [shutil.which("initdb")])), *Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return programs[0].resolve().parent if programs else None


def table(messages: Sequence[dict[str, str]]) -> pa.Table:
    maps = pa.array([list(message.items()) for message in messages], pa.map_(pa.string(), pa.string()))
    return pa.table({"row": pa.array(range(len(messages)), pa.int64()), "properties": maps})


def query(predicates: Sequence[str]) -> str:
    columns = ", ".join(f"{predicate} AS p{number}" for number, predicate in enumerate(predicates))
    return f"SELECT row, {columns} FROM messages ORDER BY row"  # noqa: S608


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    folder, programs = tmp_path_factory.mktemp("datafusion") / "messages", postgres_programs()
    runs: dict[str, Run] = {"duckdb": in_duckdb, "datafusion": partial(in_datafusion, folder)}
    if programs is None:
        yield runs
        return
    with Postgres(programs) as postgres:
        yield runs | {"postgres": postgres.answers}


def engine(engines: dict[str, Run], dialect: str) -> Run:
    if dialect not in engines:
        pytest.skip(f"{dialect} is not installed")
    return engines[dialect]


@pytest.mark.parametrize(
    ("dialect", "each"), [("duckdb", 1 if DEEP else 5), ("datafusion", 20), ("postgres", 1 if DEEP else 20)]
)
def test_an_engine_delivers_what_the_broker_delivers(engines: dict[str, Run], dialect: str, each: int) -> None:
    run, known = engine(engines, dialect), [row for row in expressions() if row["compiles"]][::each]
    refused = REFUSED_BY_POSTGRES if dialect == "postgres" else REFUSED
    all_cases = sum(len(row["cases"]) for row in known)
    asked = [
        (compiled(row["expression"]), [case for case in row["cases"] if not has_text(case, refused)])
        for row in known
        if dialect != "postgres" or "\x00" not in row["expression"]
    ]
    assert sum(len(cases) for _, cases in asked) > (1 - MOST_REFUSED) * all_cases
    wrong = []
    for first in range(0, len(asked), A_QUERY):
        wrong += disagreements(run, dialect, asked[first : first + A_QUERY])
    assert not wrong, wrong[:10]


def has_text(case: dict[str, Any], pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(text) for text in case["properties"].values())


def disagreements(
    run: Run, dialect: str, asked: Sequence[tuple[CompiledExpression, list[dict[str, Any]]]]
) -> list[tuple[str, dict[str, Any]]]:
    places: dict[tuple[tuple[str, str], ...], int] = {}
    for _, cases in asked:
        for case in cases:
            places.setdefault(tuple(case["properties"].items()), len(places))
    answers = run([dict(message) for message in places], [expression.sql(dialect) for expression, _ in asked])
    return [
        (expression.expression, case)
        for (expression, cases), answer in zip(asked, answers, strict=True)
        for case in cases
        if answer[places[tuple(case["properties"].items())]] is not (case["result"] == "TRUE")
    ]


@pytest.mark.parametrize(
    ("dialect", "expression", "text"),
    [
        *[(name, "a > 5.0", text) for name in ("duckdb", "datafusion") for text in ("0x1p3", "-0x1p3")],
        *[(name, "a > 5", "٦") for name in ("duckdb", "datafusion", "postgres")],
        *[("postgres", "a > 5.0", text) for text in ("1e999", "-1e999", "1e-999", "\x00")],
    ],
)
def test_an_engine_refuses_what_it_cannot_read(
    engines: dict[str, Run], dialect: str, expression: str, text: str
) -> None:
    run, message = (
        engine(engines, dialect),
        "(convert|cast) string|invalid input syntax|out of range|unsupported Unicode",
    )
    with pytest.raises(Exception, match=f"(?i){message}"):
        run([{"a": text}], [compile(expression).sql(dialect)])
