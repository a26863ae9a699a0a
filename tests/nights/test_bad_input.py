"""Damaged, growing or missing input gives a correct partial result, or one line that says what to do."""

from __future__ import annotations

import fcntl
import random
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import (
    audit,
    deliver,
    explain,
    export,
    inconsistency,
    ingest,
    lag,
    lint,
    maintain,
    nightly,
    pulls,
    register,
    replay,
    report,
    verify,
    what_if,
)
from jobs.cli.output import output_file
from jobs.night import night, tasks
from schemas.errors import UsageError
from tests.captures import capture
from tests.nights.commands import GOOD_EVENT, Run, arguments, as_nobody, one_line, open_to_all, rows_of
from tests.nights.commands import night as night_of
from tests.records import log_of
from tests.replayed import Replayed

PROJECT = Path(__file__).parent.parent.parent
EVENTS = capture("small") / "subscription_events.jsonl"


def test_a_warehouse_whose_path_has_a_percent_escape(run: Run, tmp_path: Path) -> None:
    ended = run(nightly, "--store", capture("small") / "store", "--warehouse", tmp_path / "a%20b")
    assert (ended.code, "a%20b contains %20, which delta-rs takes for" in ended.error) == (2, True)
    assert not list(tmp_path.iterdir())


def test_a_warehouse_whose_name_is_empty(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell writes a variable that is not set: not the working directory."""
    monkeypatch.chdir(tmp_path)
    ended = run(nightly, "--store", capture("small") / "store", "--warehouse", "")
    assert (ended.code, one_line(ended.error), "a path is empty" in ended.error) == (2, True, True)
    assert not list(tmp_path.iterdir())


def store_of(folder: Path, content: bytes | None, name: str = "00000000000000000000") -> Path:
    (folder / "store" / "commitlog").mkdir(parents=True)
    if content is not None:
        (folder / "store" / "commitlog" / name).write_bytes(content)
    return folder / "store"


def file_of(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


NOISE = random.Random(20_261_121).randbytes(10_000)


def unreadable_segment(folder: Path) -> Path:
    store = store_of(folder, NOISE)
    (store / "commitlog" / "00000000000000000000").chmod(0)
    return store


DLEDGER = "dledger-n{}/data/00000000000000000000"
STORES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "does not exist": (lambda folder: folder / "nowhere", "nowhere does not exist; give a broker's store folder"),
    "empty folder": (lambda folder: folder, "holds no commit log segment"),
    "no commitlog": (lambda folder: file_of(folder, "checkpoint", b"\0" * 48).parent, "holds no commit log segment"),
    "empty commitlog": (lambda folder: store_of(folder, None), "commitlog holds no commit log segment"),
    "DLedger of two": (
        lambda folder: file_of(file_of(folder, DLEDGER.format(0), NOISE).parents[2], DLEDGER.format(1), NOISE).parents[
            2
        ],
        "has the DLedger commitlogs of several brokers (dledger-n0, dledger-n1): give a store with one",
    ),
    "DLedger and a commitlog": (
        lambda folder: file_of(store_of(folder, NOISE), DLEDGER.format(0), NOISE).parents[2],
        "has the same part of the log in commitlog and in dledger-n0: remove the one that the broker does",
    ),
    "a file of noise": (
        lambda folder: file_of(folder, "log.bin", NOISE),
        "log.bin is a file; give a broker's store folder, or a message log that ends in .jsonl or .parquet",
    ),
    "noise as Parquet": (lambda folder: file_of(folder, "log.parquet", NOISE), "log.parquet is not a Parquet file"),
    "unreadable": (unreadable_segment, "00000000000000000000: permission denied; change its permissions"),
}


@pytest.mark.parametrize(("make", "message"), STORES.values(), ids=STORES)
def test_no_store(run: Run, tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    open_to_all(tmp_path)
    store = make(tmp_path)
    with as_nobody():
        code, out, error = run(nightly, "--store", store, "--subscriptions", EVENTS, "--warehouse", tmp_path / "w")
    assert (code, out) == (2, "")
    assert one_line(error)
    assert message in error
    assert not (tmp_path / "w").exists()


PLACES = {
    "a home that nobody has": ("~nobody-at-all/x", "Could not determine home directory"),
    "a store without a bucket": ("s3://", "it names no bucket"),
    "a scheme that is not known": ("xyz://bucket/folder", "Unknown scheme"),
}


@pytest.mark.parametrize("option", ["--store", "--warehouse"])
@pytest.mark.parametrize(("place", "message"), PLACES.values(), ids=PLACES)
def test_no_place(run: Run, tmp_path: Path, option: str, place: str, message: str) -> None:
    given = {"--store": capture("small") / "store", "--subscriptions": EVENTS, "--warehouse": tmp_path / "w"}
    code, out, error = run(nightly, *(part for pair in (given | {option: place}).items() for part in pair))
    assert (code, out) == (2, "")
    assert one_line(error)
    assert message in error


@pytest.mark.parametrize("by", ["store", "brokers"])
def test_the_folder_above_a_store(run: Run, tmp_path: Path, by: str) -> None:
    """The folder of a capture also has JSON lines, which are no message log."""
    folder = capture("small")
    listed = file_of(tmp_path, "brokers.yaml", f"- {{name: a, store: {folder}}}")
    named = ("--store", folder) if by == "store" else ("--brokers", listed)
    ended = run(nightly, *named, "--subscriptions", EVENTS, "--warehouse", tmp_path / "w")
    assert ended.code == 2
    assert f"{folder} is not a store folder, but {folder / 'store'} is: give that" in ended.error
    assert not (tmp_path / "w" / "commitlog").exists() or not offsets(tmp_path / "w")


@pytest.mark.parametrize("option", ["--group", "--topic", "--broker"])
@pytest.mark.parametrize("job", [explain, export, lag, pulls, what_if])
def test_an_empty_name_is_told_with_its_option(run: Run, tmp_path: Path, job: ModuleType, option: str) -> None:
    code, _, error = run(job, "--warehouse", tmp_path / "w", option, "")
    assert code == 2
    assert one_line(error)
    assert f"argument {option}: the name is empty" in error


CONFIGURATIONS: dict[str, tuple[str, str | bytes | None, str]] = {
    "no subscriptions": ("--subscriptions", None, "no such file or directory; check the path"),
    "noise as subscriptions": ("--subscriptions", NOISE, "has no subscription (line 1: not UTF-8"),
    "no list": ("--subscriptions", "group: a", "(line 1: not a list; start each subscription with a dash"),
    "only bad events": ("--subscriptions", '{"op": "sing"}\n', "has no subscription (line 1: "),
    "no broker.conf": ("--broker-config", None, "no such file or directory; check the path"),
    "no groups": ("--broker-config", "expectConsumerNumUseFilter=0", "a broker does not start with it"),
    "no delay": ("--broker-config", "messageDelayLevel=1s 5x", "5x"),
}


@pytest.mark.parametrize(("option", "content", "message"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_no_configuration(run: Run, tmp_path: Path, option: str, content: str | bytes | None, message: str) -> None:
    file = tmp_path / "file" if content is None else file_of(tmp_path, "file", content)
    given = {"--store": capture("small") / "store", "--subscriptions": EVENTS, "--warehouse": tmp_path / "w"}
    code, out, error = run(nightly, *(part for pair in (given | {option: file}).items() for part in pair))
    assert (code, out) == (2, "")
    assert one_line(error)
    assert str(file) in error
    assert message in error


def test_an_error_stands_alone_on_a_terminal(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal shows what follows a carriage return and an erased line."""
    monkeypatch.setenv("MQSIEVE_TERMINAL", "1")
    (tmp_path / "off.conf").write_text("brokerName=broker-a\nenablePropertyFilter=false\n")
    assert run(nightly, *arguments("small", tmp_path / "w")).code == 0
    ended = run(nightly, *arguments("small", tmp_path / "w"), "--broker-config", tmp_path / "off.conf")
    assert ended.error.rpartition("\r\033[K")[2].startswith("mqsieve: the broker's switches are not")


@pytest.mark.parametrize(
    ("job", "given", "meant"),
    [
        (explain, "--key", "--message"),
        (what_if, "--expression", "--sql"),
        (lint, "--strict", "--fail-on"),
        (nightly, "--fail-on", "--strict"),
        (report, "--sinc", "--since"),
        (what_if, "--since", "--from"),
    ],
)
def test_an_option_that_has_another_name_here(run: Run, job: ModuleType, given: str, meant: str) -> None:
    ended = run(job, "--warehouse", "w", *(("--output", "x") if job is report else ()), given, "x")
    assert (ended.code, ended.error.endswith(f"; did you mean {meant}?\n")) == (2, True), ended.error


def test_a_message_without_its_option(run: Run) -> None:
    assert run(explain, "--warehouse", "w", "ord-7").error.endswith("; did you mean --message ord-7?\n")
    assert "did you mean" not in run(lint, "--warehouse", "w", "ord-7").error
    assert "did you mean" not in run(inconsistency, "--warehouse", "w", "--group", "cg").error


def test_no_usage(run: Run, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    options = "./spark-submit.sh nightly --help lists the options"
    messages = {
        (
            "--sotre",
            "x",
            "--warehouse",
            tmp_path,
        ): f"unrecognized arguments: --sotre x; {options}; did you mean --store?\n",
        (
            "--stor",
            "x",
            "--warehouse",
            tmp_path,
        ): f"unrecognized arguments: --stor x; {options}; did you mean --store?\n",
        (): f"required: --warehouse; {options}\n",
        ("--warehouse", tmp_path): "--store is missing: give the broker's store folder, or --brokers",
    }
    for given, expected in messages.items():
        code, out, error = run(nightly, *given)
        assert (code, out, one_line(error), expected in error) == (2, "", True, True), error
    written = ("--warehouse", nowhere, "--output", tmp_path / "out.jsonl")
    code, out, error = run(export, "delivered", *written)
    assert (code, out, one_line(error)) == (2, "", True)
    assert "argument TABLE: invalid choice: 'delivered'; it is one of commitlog, " in error
    assert error.endswith("; ./spark-submit.sh export --help lists the options; did you mean deliveries?\n")
    assert run(export, "messages", *written).error.endswith("; did you mean commitlog?\n")
    code, out, error = run(export, "deliveries", *written)
    create = f"./spark-submit.sh nightly --warehouse {nowhere} --store STORE"
    missing = f"mqsieve: {nowhere} does not exist: check --warehouse, or create it with {create}\n"
    assert (code, out, error) == (2, "", missing)
    for job in (deliver, lag, maintain):
        assert run(job, "--warehouse", nowhere) == (2, "", missing)
    assert not nowhere.exists()
    file = file_of(tmp_path, "file", "")
    assert run(lag, "--warehouse", file) == (2, "", f"mqsieve: {file} is a file: check --warehouse\n")


def test_commands_in_messages_can_be_pasted(run: Run, tmp_path: Path) -> None:
    warehouse = tmp_path / "two  words; it's"
    quoted = shlex.quote(str(warehouse))
    create = f"./spark-submit.sh nightly --warehouse {quoted} --store STORE"
    assert run(lag, "--warehouse", warehouse).error.endswith(f"or create it with {create}\n")
    warehouse.mkdir()
    assert run(lag, "--warehouse", warehouse).error.endswith(f"has no night yet: run {create} first\n")
    ended = run(nightly, *arguments("small", warehouse))
    assert f"  ./spark-submit.sh lint --warehouse {quoted}\n" in ended.out
    assert ended.out.endswith(f"  ./spark-submit.sh export deliveries --warehouse {quoted} --output deliveries.jsonl\n")
    error = run(export, "quality_results", "--warehouse", warehouse, "--output", "-").error
    assert error.endswith(f" has no quality_results yet: run ./spark-submit.sh audit --warehouse {quoted} first\n")


@pytest.mark.parametrize(
    ("job", "question"),
    [
        (audit, ()),
        (explain, ("--message", "m")),
        (lag, ()),
        (lint, ()),
        (pulls, ("--group", "g", "--topic", "T")),
        (verify, ("--store", capture("small") / "store")),
        (what_if, ("--group", "g", "--sql", "a = 1")),
    ],
)
def test_a_warehouse_before_its_first_night(
    run: Run, tmp_path: Path, job: ModuleType, question: tuple[object, ...]
) -> None:
    ended = run(job, "--warehouse", tmp_path, *question)
    assert (ended.code, ended.out, one_line(ended.error)) == (2, "", True)
    assert "has no night yet: run " in ended.error


def test_the_folder_of_another_program(run: Run, tmp_path: Path, replayed: Replayed) -> None:
    """A broker's store has folders that are called as tables are."""
    shutil.copytree(capture("small") / "store", tmp_path / "store")
    before = sorted(tmp_path.rglob("*"))
    refused = f"mqsieve: {tmp_path / 'store'} is not empty, and no mqsieve warehouse (it has "
    source = replayed("small").location
    into = ("--warehouse", source, "--into", tmp_path / "store")
    for job, given in ((nightly, arguments("small", tmp_path / "store")), (replay, into)):
        ended = run(job, *given)
        assert (ended.code, ended.out, one_line(ended.error)) == (2, "", True)
        assert ended.error.startswith(refused)
    for job in (lag, maintain, audit):
        ended = run(job, "--warehouse", tmp_path / "store")
        assert (ended.code, ended.out) == (2, "")
        assert f"{tmp_path / 'store'} is no mqsieve warehouse: it has no run_ledger" in ended.error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("lost", [["run_ledger"], ["run_ledger", "commitlog"]])
def test_a_warehouse_without_its_ledger(run: Run, tmp_path: Path, replayed: Replayed, lost: list[str]) -> None:
    shutil.copytree(replayed("small").storage.root, tmp_path / "w")
    for table in lost:
        shutil.rmtree(tmp_path / "w" / table)
    ended = run(nightly, *arguments("small", tmp_path / "w"))
    assert (ended.code, "but no run_ledger: it is of an older mqsieve, or" in ended.error) == (2, True)


def test_a_first_night_in_an_empty_folder(run: Run, tmp_path: Path) -> None:
    """A new disk has a folder of its own, and a run that ended early leaves its lock."""
    (tmp_path / "lost+found").mkdir()
    (tmp_path / ".lock").touch()
    assert run(nightly, *arguments("small", tmp_path)).code == 0


def test_the_configuration_of_another_broker(run: Run, tmp_path: Path) -> None:
    config = (capture("small") / "broker.conf").read_text()
    other = file_of(tmp_path, "broker.conf", config.replace("broker-a", "broker-z"))
    message = "the topics.json of the store is of broker-a, and the messages are stored as those of broker-z: "
    given = ("--store", capture("small") / "store", "--warehouse", tmp_path / "w", "--broker-config")
    assert message in run(nightly, *given, other).out
    assert "the topics.json of the store" not in run(nightly, *given, capture("small") / "broker.conf").out
    replaced = ("--store", capture("plain") / "store", *given[2:], other, "--new-epoch")
    assert message in run(nightly, *replaced).out


def test_an_output_in_a_folder_of_another_user(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    tmp_path.chmod(0o555)
    message = (
        f"cannot write {tmp_path / 'night.html'} (permission denied): give a file in a folder that you may write to"
    )
    with as_nobody(), pytest.raises(UsageError) as refused, output_file(tmp_path / "night.html"):
        pytest.fail("was opened")
    tmp_path.chmod(0o755)
    assert (str(refused.value), list(tmp_path.iterdir())) == (message, [])


def test_no_warehouse(run: Run, tmp_path: Path) -> None:
    given = ("--subscriptions", EVENTS, "--warehouse")
    open_to_all(tmp_path)
    tmp_path.chmod(0o555)
    with as_nobody():
        code, out, error = run(register, *given, tmp_path / "w")
    tmp_path.chmod(0o755)
    message = "(permission denied): give a folder that you may write to\n"
    assert (code, out, error) == (2, "", f"mqsieve: cannot write to {tmp_path / 'w'} {message}")
    file = file_of(tmp_path, "file", "")
    code, out, error = run(register, *given, file)
    assert (code, out, error) == (
        2, "", f"mqsieve: cannot write to {file} (file exists): give a folder that you may write to\n",
    )  # fmt: skip
    new = tmp_path / "new"
    new.mkdir()
    with (new / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out, error = run(register, *given, new)
    assert (code, out, error) == (
        4, "", f"mqsieve: another run is writing to {new}: wait for it to end and try again\n",
    )  # fmt: skip


def test_a_store_of_noise_is_quarantined_whole_and_bad_subscriptions_are_told(run: Run, tmp_path: Path) -> None:
    store = store_of(tmp_path, NOISE)
    events = [
        GOOD_EVENT,
        "no event at all",
        GOOD_EVENT.replace("cg_good", "cg_sql").replace('"paid"', '"price >", "type": "SQL92"'),
        GOOD_EVENT.replace("register", "sing"),
    ]
    subscriptions = file_of(tmp_path, "events.jsonl", "\n".join(events))
    given = ("--store", store, "--subscriptions", subscriptions, "--warehouse", tmp_path / "w")
    code, out, _ = run(nightly, *given)
    assert code == 0
    assert "no message: nothing could be decoded" in out
    assert "quarantined: 00000000000000000000, offset 0: " in out
    assert "quarantined: events.jsonl, line 2: not JSON" in out
    assert "quarantined: events.jsonl, line 4: op" in out
    assert "cg_sql on OrderEvents does not compile: A property, a literal or a parenthesis is expected" in out
    assert run(nightly, *given, "--strict").code == 3
    quarantined = sorted(rows_of(tmp_path / "w", "quarantine"), key=lambda row: (row["source_file"], row["offset"]))
    assert b"".join(row["bytes"] for row in quarantined if row["source_file"].isdecimal()) == NOISE
    assert [(row["offset"], row["bytes"].decode()) for row in quarantined if row["source_file"] == "events.jsonl"] == [
        (2, events[1]), (4, events[3]),
    ]  # fmt: skip
    rows = sorted(rows_of(tmp_path / "w", "subscriptions"), key=lambda row: row["consumer_group"])
    assert [(row["consumer_group"], row["compile_error"] is None) for row in rows] == [
        ("cg_good", True), ("cg_sql", False),
    ]  # fmt: skip


def test_the_store_of_a_broker_before_its_first_message(run: Run, tmp_path: Path, replayed: Replayed) -> None:
    """Its other files have times, but the log has none yet. The next night is like a first one."""
    store = store_of(tmp_path, bytes(131_072))
    shutil.copytree(capture("small") / "store" / "config", store / "config")
    shutil.copyfile(capture("small") / "store" / "checkpoint", store / "checkpoint")
    given = EVENTS, capture("small") / "broker.conf"
    ended = run(nightly, *night_of(tmp_path / "w", store, *given))
    assert ended.code == 0, ended.error
    assert run(nightly, *night_of(tmp_path / "w", capture("small") / "store", *given)).code == 0
    columns = ("consumer_group", "topic", "queue_id", "queue_offset", "outcome", "available_at", "subscription_from")
    assert sorted(rows_of(tmp_path / "w", "deliveries", *columns), key=repr) == sorted(
        rows_of(replayed("small"), "deliveries", *columns), key=repr
    )


def test_a_bad_line_is_told_with_the_name_of_its_file(run: Run, tmp_path: Path) -> None:
    first = file_of(tmp_path, "first.jsonl", f"{GOOD_EVENT}\nbad")
    second = file_of(tmp_path, "second.jsonl", f"{GOOD_EVENT}\nworse")
    run(register, "--subscriptions", first, "--subscriptions", second, "--warehouse", tmp_path / "w")
    quarantined = rows_of(tmp_path / "w", "quarantine", "source_file", "offset", "bytes")
    assert sorted((row["source_file"], row["offset"], row["bytes"]) for row in quarantined) == [
        ("first.jsonl", 2, b"bad"), ("second.jsonl", 2, b"worse"),
    ]  # fmt: skip
    run(register, "--subscriptions", file_of(tmp_path, "first.jsonl", GOOD_EVENT), "--warehouse", tmp_path / "w")
    assert [row["source_file"] for row in rows_of(tmp_path / "w", "quarantine")] == ["second.jsonl"]
    assert "second.jsonl, line 2" in run(lint, "--subscriptions", first, "--subscriptions", second).out


def test_a_bad_line_keeps_the_run_that_first_read_it(run: Run, tmp_path: Path) -> None:
    bad = ["bad", "worse", "worst"]
    for lines in (bad[:2], bad, ["better", *bad[1:]], [GOOD_EVENT, *bad[1:]]):
        events = file_of(tmp_path, "events.jsonl", "\n".join([GOOD_EVENT, *lines]))
        run(register, "--subscriptions", events, "--warehouse", tmp_path / "w")
    runs = sorted(row["run"] for row in rows_of(tmp_path / "w", "run_ledger"))
    rows = rows_of(tmp_path / "w", "quarantine", "offset", "bytes", "run")
    assert sorted((row["offset"], row["bytes"], runs.index(row["run"])) for row in rows) == [
        (3, b"worse", 0), (4, b"worst", 1),
    ]  # fmt: skip


def test_a_name_that_is_not_utf8_among_more_names_than_columns(run: Run, tmp_path: Path) -> None:
    """Java decodes the properties as a whole: each wrong byte becomes U+FFFD, which may be another name's, too."""
    many = b"\xef\xbf\xbd\x01w\x02" + b"".join(b"p%d\x01x\x02" % number for number in range(40))
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    texts = (many, b"\xff\x01v\x02")
    log = log_of(*({"topic": b"T", "properties": text, "queue_offset": i} for i, text in enumerate(texts)))
    (tmp_path / "store" / "commitlog" / f"{0:020d}").write_bytes(log)
    run(nightly, "--store", tmp_path / "store", "--warehouse", tmp_path / "w")
    first, second = (row["properties"] for row in rows_of(tmp_path / "w", "commitlog", "properties"))
    assert (len(first), first["\ufffd"], second) == (41, "w", {"\ufffd": "v"})


def test_the_log_of_a_store_alone(run: Run, tmp_path: Path) -> None:
    """Without the folders beside it, a night would not know offsets, queues and the version."""
    store = capture("small") / "store"
    ended = run(nightly, "--store", f"{store}/commitlog/", "--warehouse", tmp_path / "w")
    assert (ended.code, ended.out) == (2, "")
    assert ended.error == f"mqsieve: {store}/commitlog is only the log of the store {store}: give that\n"
    shutil.copytree(store / "commitlog", tmp_path / "commitlog")
    given = ("--store", tmp_path / "commitlog", "--subscriptions", EVENTS, "--warehouse", tmp_path / "w")
    assert run(nightly, *given).code == 0


def test_a_store_that_grows_gives_what_is_whole_and_the_rest_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(capture("small") / "store" / "commitlog", tmp_path / "commitlog")
    last = max((tmp_path / "commitlog").iterdir())
    whole = last.read_bytes()
    written = 4_600
    last.write_bytes(whole[:written] + bytes(len(whole) - written))
    given = ("--store", tmp_path, "--warehouse", tmp_path / "w")
    read_range = tasks.read_range

    def broker_appends(*arguments: Any, **named: Any) -> Any:
        """Called after the search for the end of the log, and before messages are read."""
        last.write_bytes(whole[: 2 * written] + bytes(len(whole) - 2 * written))
        return read_range(*arguments, **named)

    monkeypatch.setattr(night, "read_range", broker_appends)
    assert run(ingest, *given).code == 0
    monkeypatch.undo()
    first = offsets(tmp_path / "w")
    assert first == sorted(set(first))
    assert 0 < len(first) < 743

    last.write_bytes(whole)
    assert run(ingest, *given).code == 0
    assert len(offsets(tmp_path / "w")) == len(set(offsets(tmp_path / "w"))) == 743
    assert set(first) < set(offsets(tmp_path / "w"))
    assert list(rows_of(tmp_path / "w", "quarantine")) == []
    assert "There was nothing new" in run(ingest, *given).out


def offsets(warehouse: Path) -> list[int]:
    return sorted(row["commitlog_offset"] for row in rows_of(warehouse, "commitlog", "commitlog_offset"))


def test_the_command_itself_says_one_line(tmp_path: Path) -> None:
    """The user's view: spark-submit, its log, and its exit code."""
    pq.write_table(pa.table({"topic": ["OrderEvents"]}), tmp_path / "log.parquet")
    given = ("--store", str(tmp_path / "log.parquet"), "--warehouse", str(tmp_path))
    command = [str(PROJECT / "spark-submit.sh"), "ingest", *given]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert one_line(ended.stderr), ended.stderr
    assert "log.parquet has no column store_timestamp, which every message needs" in ended.stderr
