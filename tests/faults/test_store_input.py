"""Stores with content that no broker writes: other files, odd names, and damage that is slow to skip."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jobs import export, nightly, pulls, verify
from schemas.rocketmq_store import segments as segment_files
from schemas.rocketmq_store.commitlog_walk import DAMAGE_BYTES, Records, scan
from schemas.rocketmq_store.segments import Segment, SegmentBytes, segments
from schemas.storage import Storage
from tests.broker_log import SEGMENT, BrokerLog
from tests.captures import capture
from tests.depth import examples
from tests.faults.fuzz_segments import MOST_SECONDS, fuzz
from tests.faults.stores import FaultyBroker
from tests.nights.commands import Run, one_line, rows_of
from tests.records import log_of, record

NAMES = {
    "globs and separators": "a*b=c:d#e,f?[g]{h}",
    "260 bytes": "b" * 260,
    "a path": "../../etc/b",
    "percent": "a%2Fb%00",
    "quotes": "a'b\"c`d\\e",
    "blanks": "a  b",
    "control characters": "a\x1b]0;title\x07b\x1b[2Jc",
    "letters of the world": "经纪人-ß-🐘",
}
CONTROL = frozenset(chr(code) for code in (*range(32), *range(127, 160))) - {"\n", "\t"}


def test_mutated_segments(tmp_path: Path) -> None:
    """A sample of tests/faults/fuzz_segments.py."""
    assert fuzz(examples(60, 300), 7, tmp_path) < MOST_SECONDS


def test_other_files_in_a_commitlog_are_no_segments(tmp_path: Path) -> None:
    store = Storage.at(str(tmp_path))
    (tmp_path / "commitlog").mkdir()
    for name in (f"{SEGMENT:020d}", f"{0:020d}"):
        (tmp_path / "commitlog" / name).write_bytes(b"x")
    expected = segments(store)
    for name in ("9" * 30, "9" * 20, "20261122", "0" * 19, "٠" * 20, "0" * 20 + ".bak", ".00000000000000000000"):
        (tmp_path / "commitlog" / name).write_bytes(b"x")
    (tmp_path / "commitlog" / f"{2 * SEGMENT:020d}").mkdir()
    assert segments(store) == expected


def test_odd_files_and_numbers_beside_the_log_change_nothing(run: Run, broker: FaultyBroker) -> None:
    queues = broker.store(1) / "consumequeue" / "T"
    for queue_id in ("0", "9" * 20, "٣", "-1", "x"):
        for name in ("9" * 30, "20261122", "notes"):
            (queues / queue_id).mkdir(parents=True, exist_ok=True)
            (queues / queue_id / name).write_bytes(bytes(40))
    offsets = '{"T@cg_all": {0: 5, 99999999999: 5, 1: 1e400, 2: -7, 3: 999999999999999999999, 4: true}}'
    (broker.store(1) / "config" / "consumerOffset.json").write_text(f'{{"offsetTable": {offsets}}}')
    (broker.store(1) / "config" / "topics.json").write_text(
        '{"topicConfigTable": {"T": {"readQueueNums": 1e400}, "V": {"readQueueNums": 99999999999}, "W": []}}'
    )
    ended = run(nightly, *broker.arguments(1))
    assert ended.code == 0, ended.error
    committed = {(row["consumer_group"], row["committed"]) for row in rows_of(broker.warehouse, "consumer_offsets")}
    assert {pair for pair in committed if pair[1] is not None} == {("cg_all", 5)}


@pytest.mark.parametrize("content", ["{" * 100_000, "[1]", '{"offsetTable": {"T@g": ' + "[" * 100_000], ids=len)
def test_a_config_file_that_cannot_be_read_is_named(run: Run, broker: FaultyBroker, content: str) -> None:
    (broker.store(1) / "config" / "consumerOffset.json").write_text(content)
    ended = run(nightly, *broker.arguments(1))
    assert (ended.code, ended.out, one_line(ended.error)) == (2, "", True)
    assert "config/consumerOffset.json is not" in ended.error


class CountedBytes(SegmentBytes):
    """Counts the bytes that are read from segments."""

    read_bytes = 0

    def read(self, position: int, length: int):  # type: ignore[no-untyped-def]
        data = super().read(position, length)
        CountedBytes.read_bytes += len(data)
        return data


def test_each_byte_behind_damage_is_searched_a_few_times_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 records whose hosts have no port, 256 MiB of zeros (a sparse file), and a message."""
    monkeypatch.setattr(segment_files, "SegmentBytes", CountedBytes)
    size = 256 << 20
    undecodable = log_of(*[{"port": 70_000}] * 2_000)
    file = tmp_path / f"{0:020d}"
    with file.open("wb") as log:
        log.write(undecodable)
        log.seek(size)
        log.write(record(size))
    segment = Segment(0, file.name, file.stat().st_size, Storage.at(str(tmp_path)))
    CountedBytes.read_bytes = 0
    kept, pieces, largest = 0, 0, 0
    for piece in scan(segment):
        if isinstance(piece, Records):
            kept += len(piece)
        else:
            pieces += 1
            largest = max(largest, len(piece.bytes))
    assert (kept, largest) == (1, DAMAGE_BYTES)
    assert pieces <= 2_000 + size // DAMAGE_BYTES + 1
    assert CountedBytes.read_bytes < 2_000 * (128 << 10) + 3 * size


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_broker_may_be_called_anything(run: Run, tmp_path: Path, name: str) -> None:
    store = BrokerLog().append(3).write(tmp_path / "store")
    (tmp_path / "subscriptions.yaml").write_text("- {group: cg_all, topic: T, tag: '*'}\n")
    escaped = "".join(each if " " < each <= "~" and each != "\\" else _escaped(each) for each in name)
    (tmp_path / "broker.conf").write_text(f"brokerName={escaped}\n")
    given = (
        "--store", store, "--warehouse", tmp_path / "w", "--subscriptions", tmp_path / "subscriptions.yaml",
        "--broker-config", tmp_path / "broker.conf",
    )  # fmt: skip
    ends = [run(nightly, *given)]
    BrokerLog().append(5).write(tmp_path / "store")
    ends += [run(nightly, *given), run(nightly, *given)]
    assert "There was nothing new" in ends[-1].out
    where = ("--warehouse", tmp_path / "w", "--broker", name)
    ends += [
        run(pulls, "--group", "cg_all", "--topic", "T", *where),
        run(export, "deliveries", "--output", tmp_path / "out.jsonl", *where),
    ]
    assert [ended.code for ended in ends] == [0] * len(ends), ends
    ends.append(run(verify, "--store", capture("small") / "store", "--warehouse", tmp_path / "w", "--broker", "none"))
    assert ends[-1].code == 2
    assert [row["broker_name"] for row in rows_of(tmp_path / "w", "deliveries")] == [name] * 5
    for ended in ends:
        assert not CONTROL & set(ended.out + ended.error)
    assert {path.name for path in (tmp_path / "w").iterdir()} >= {"commitlog", "run_ledger"}
    assert not [path for path in (tmp_path / "w").rglob("*") if path.name == "b" or "=" in path.name]


def _escaped(character: str) -> str:
    encoded = character.encode("utf-16-be")
    return "".join(f"\\u{encoded[i : i + 2].hex()}" for i in range(0, len(encoded), 2))


def test_names_in_a_log_do_not_rule_the_terminal(run: Run, tmp_path: Path) -> None:
    clear = "\x1b[2J\x1b]0;x\x07\x9b"
    topic = f"T{clear}"
    shutil.copytree(capture("small") / "store" / "config", tmp_path / "store" / "config")
    BrokerLog().append(3, topic=topic, TAGS=clear).write(tmp_path / "store")
    (tmp_path / "events.jsonl").write_text(
        f'{{"at": 1, "op": "register", "group": "g{_escaped_all(clear)}", "topic": "T{_escaped_all(clear)}", '
        f'"type": "SQL92", "expression": "n > {_escaped_all(clear)}"}}\n{{"at": 1, "op": "{_escaped_all(clear)}"}}\n'
    )
    (tmp_path / "store" / "consumequeue" / topic / "7").mkdir(parents=True)
    (tmp_path / "store" / "consumequeue" / topic / "7" / f"{0:020d}").write_bytes(bytes(20))
    given = ("--store", tmp_path / "store", "--warehouse", tmp_path / "w")
    ends = [
        run(nightly, *given, "--subscriptions", tmp_path / "events.jsonl"),
        run(verify, *given),
        run(pulls, "--group", f"g{clear}", "--topic", topic, "--warehouse", tmp_path / "w"),
        run(pulls, "--group", clear, "--topic", topic, "--warehouse", tmp_path / "w"),
        run(export, "commitlog", "--columns", clear, "--output", "-", "--warehouse", tmp_path / "w"),
    ]
    for ended in ends:
        assert not CONTROL & set(ended.out + ended.error), ended
    assert "\\x1b" in ends[0].out


def _escaped_all(text: str) -> str:
    return "".join(map(_escaped, text))
