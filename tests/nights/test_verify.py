"""verify, on consume queues of a real broker, whole and damaged."""

import json
import shutil
from pathlib import Path

import pytest

from jobs import nightly, verify
from jobs.cli import application
from jobs.cli.application import CheckFailed
from schemas.delta.warehouse import Warehouse
from schemas.errors import UsageError
from tests.broker_log import BrokerLog
from tests.captures import capture, rows
from tests.nights.commands import Run, living, night
from tests.nights.growing_broker import BEFORE, sql
from tests.records import V1, V2, entry, record
from tests.replayed import Replayed


def arguments(warehouse: Warehouse, store: Path) -> list[str]:
    """The broker's switches come from the night that made the warehouse."""
    return ["--warehouse", warehouse.location, "--store", str(store)]


def test_every_damage_is_named(
    replayed: Replayed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    warehouse = replayed("small")
    store = tmp_path / "store"
    shutil.copytree(capture("small") / "store", store)
    flip(store / "consumequeue/OrderEvents/0/00000000000000000000", 20 * 7 + 11)
    flip(store / "consumequeue_ext/OrderEvents/1/00000000000000000000", 3 * 34 + 20)
    flip(store / "consumequeue/TagLab/0" / last_file(store / "consumequeue/TagLab/0"), -1)
    shutil.rmtree(store / "consumequeue/DeviceTelemetry/1")
    shutil.copytree(store / "consumequeue/TagLab/0", store / "consumequeue/Phantom/5")
    shutil.copytree(store / "consumequeue_ext/TagLab/0", store / "consumequeue_ext/TagLab/77")
    flip(store / "consumequeue_ext/OrderEvents/3/00000000000000002048", -1)
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", ["verify", *arguments(warehouse, store)])
    with pytest.raises(SystemExit) as exit:
        application.run(verify.main)
    assert exit.value.code == 3
    unit = "00220000000000000000000001a1fc7e8c1b000e{}01000000000100201040105018"
    output = capsys.readouterr()
    assert output.err == "mqsieve: 8 differences\n"
    assert output.out.splitlines() == [
        "DeviceTelemetry/1: consumequeue/00000000000000000000: the file is missing",
        "DeviceTelemetry/1: consumequeue/00000000000000001000: the file is missing",
        "OrderEvents/0: consumequeue/00000000000000000000, entry 7: size is 686, should be 687",
        "OrderEvents/1: consumequeue_ext/00000000000000000000, entry 3: "
        f"unit is {unit.format('20')}, should be {unit.format('21')}",
        f"OrderEvents/3: consumequeue_ext/00000000000000002048, entry {last_entry('OrderEvents', 3)}: "
        "what follows the unit has a byte other than the broker's at position 2047",
        "Phantom/5: consumequeue: no message of the log belongs to this queue",
        "TagLab/0: consumequeue/00000000000000002000, entry 149: something other than zeros follows the last entry",
        "TagLab/77: consumequeue_ext: no message of the log belongs to this queue",
    ]
    with pytest.raises(CheckFailed, match="8 differences"):
        verify.main([*arguments(warehouse, store), "--json"])
    differences = json.loads(capsys.readouterr().out)["differences"]
    lines = [
        f"{each['topic']}/{each['queue_id']}: {each['file']}"
        + ("" if each["queue_offset"] is None else f", entry {each['queue_offset']}")
        + f": {each['reason']}"
        for each in differences
    ]
    assert lines == output.out.splitlines()


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0x01
    file.write_bytes(data)


def last_entry(topic: str, queue_id: int) -> int:
    entries = rows("small", "consumequeue")
    return max(int(e["queueOffset"]) for e in entries if (e["topic"], e["queueId"]) == (topic, queue_id))


def last_file(folder: Path) -> str:
    return max(file.name for file in folder.iterdir())


def test_a_store_without_a_consume_queue(replayed: Replayed, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no consumequeue folder"):
        verify.main(arguments(replayed("small"), tmp_path))


def test_a_message_log_is_no_store(replayed: Replayed, tmp_path: Path, run: Run) -> None:
    log = tmp_path / "log.jsonl"
    log.touch()
    ended = run(verify, "--warehouse", replayed("small").location, "--store", log)
    assert (ended.code, ended.error) == (2, f"mqsieve: {log} is a file; give a broker's whole store folder\n")


def test_a_broker_that_the_warehouse_does_not_know(replayed: Replayed, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=broker-b\n")
    store = capture("small") / "store"
    with pytest.raises(UsageError, match="the warehouse has no broker broker-b; it holds broker-a"):
        verify.main([*arguments(replayed("small"), store), "--broker-config", str(conf)])


SNAPSHOT, HISTORY = ["store/config/consumerFilter.json"], ["subscription_events.jsonl"]


@pytest.mark.parametrize(
    ("files", "options", "is_judged"),
    [
        (SNAPSHOT, [], False),
        (HISTORY + SNAPSHOT, [], True),
        (SNAPSHOT + HISTORY, ["--redo-from", "0"], True),
        (SNAPSHOT + HISTORY + SNAPSHOT, ["--redo-from", "0"], True),
    ],
)
def test_bit_maps_are_judged_unless_the_history_begins_with_a_snapshot(
    run: Run, tmp_path: Path, files: list[str], options: list[str], is_judged: bool
) -> None:
    small = capture("small")
    given = ("--store", small / "store", "--warehouse", tmp_path)
    for file in files:
        more = options if [file] == HISTORY else []
        assert run(
            nightly, *given, "--subscriptions", small / file, "--broker-config", small / "broker.conf", *more
        ).code == 0  # fmt: skip
    out = run(verify, *given).out
    if is_judged:
        assert out.startswith("identical: ")
    else:
        assert out.startswith("cannot judge the filter bit maps: the first subscriptions are not known")
        assert out.splitlines()[-1] == "no difference in what could be judged"


@pytest.mark.parametrize("newer", [1, 5])
def test_a_store_that_is_older_than_the_warehouse(run: Run, tmp_path: Path, newer: int) -> None:
    log = BrokerLog().append(5)
    log.write(tmp_path / "older")
    log.append(newer).write(tmp_path / "store")
    for store in ("older", "store"):
        log.write_queues(tmp_path / store)
    assert run(nightly, "--store", tmp_path / "store", "--warehouse", tmp_path / "w").code == 0
    ended = run(verify, "--warehouse", tmp_path / "w", "--store", tmp_path / "older")
    assert (ended.code, "give a newer copy of that broker's store" in ended.error, ended.out) == (2, True, "")


def test_a_store_that_is_newer_than_the_warehouse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nightly.main(living(1, tmp_path))
    capsys.readouterr()
    store = capture("nights_dev") / "night_2" / "store"
    verify.main(["--warehouse", str(tmp_path), "--store", str(store)])
    assert "cannot judge 705 entries of messages that are not in the warehouse" in capsys.readouterr().out


def test_a_queue_whose_messages_were_all_deleted_before_any_night(run: Run, tmp_path: Path) -> None:
    """The broker deletes segments of its log first, and the files of queues later."""
    store = tmp_path / "store"
    shutil.copytree(capture("nights_dev") / "night_4" / "store", store)
    deleted = (capture("nights_dev") / "night_1" / "store/consumequeue/OrderEvents/0/00000000000000000000").read_bytes()
    for folder, content in (("consumequeue", deleted[:60].ljust(1_000, b"\0")), ("consumequeue_ext", bytes(2_048))):
        (store / folder / "Gone" / "0").mkdir(parents=True)
        (store / folder / "Gone" / "0" / "00000000000000000000").write_bytes(content)
    night = living(4, tmp_path / "w")
    night[night.index("--store") + 1] = str(store)
    assert run(nightly, *night).code == 0
    assert run(verify, "--warehouse", tmp_path / "w", "--store", store).code == 0


@pytest.fixture
def given(tmp_path: Path) -> tuple[object, ...]:
    """The options of a night and of verify: the store is ``tmp_path``."""
    return ("--store", tmp_path, "--warehouse", tmp_path / "w")


def written(log: BrokerLog, store: Path) -> None:
    log.write(store)
    log.write_queues(store)


def test_a_queue_that_names_the_first_message_of_the_log(run: Run, tmp_path: Path, given: tuple[object, ...]) -> None:
    """Its message is not deleted, but belongs to another queue."""
    written(BrokerLog().append(3), tmp_path)
    (tmp_path / "consumequeue" / "Phantom" / "0").mkdir(parents=True)
    (tmp_path / "consumequeue" / "Phantom" / "0" / f"{0:020d}").write_bytes(entry(0, 100, None))
    assert run(nightly, *given).code == 0
    assert "Phantom/0: consumequeue: no message of the log belongs to this queue\n" in run(verify, *given).out


@pytest.mark.parametrize("topic", ["x" * 300, "a\0b"])
def test_a_topic_that_no_folder_can_have(run: Run, tmp_path: Path, given: tuple[object, ...], topic: str) -> None:
    """The broker that stored the message could not write its queue either."""
    log = BrokerLog()
    log.data = record(0, topic=topic.encode(), magic=V2)
    written(log.append(), tmp_path)
    assert run(nightly, *given).code == 0
    ended = run(verify, *given)
    assert (ended.code, ended.error) == (3, "mqsieve: 1 difference\n")
    assert ended.out.endswith("/0: consumequeue/00000000000000000000: the file is missing\n")


def test_a_store_whose_files_are_empty(run: Run, tmp_path: Path, given: tuple[object, ...]) -> None:
    """The size of the files is then the broker's default."""
    written(BrokerLog().append(), tmp_path)
    (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").write_bytes(b"")
    assert run(nightly, *given).code == 0
    ended = run(verify, *given)
    assert ended.code == 3
    assert "T/0: consumequeue/00000000000000000000: the file has 0 bytes, should be 6000000\n" in ended.out


def test_extension_files_without_room_for_a_unit(run: Run, tmp_path: Path, given: tuple[object, ...]) -> None:
    written(BrokerLog().append(), tmp_path)
    (tmp_path / "consumequeue_ext" / "T" / "0").mkdir(parents=True)
    (tmp_path / "consumequeue_ext" / "T" / "0" / f"{0:020d}").write_bytes(b"\1" * 10)
    (tmp_path / "events").write_text(sql(BEFORE, "g", "n = '1'"))
    assert run(nightly, *given, "--subscriptions", tmp_path / "events").code == 0
    ended = run(verify, *given)
    assert (ended.code, ended.out) == (2, "")
    assert ended.error == (
        "mqsieve: a unit of 34 bytes does not fit in a file of 10: give --broker-config with a larger "
        "mappedFileSizeConsumeQueueExt\n"
    )


def test_an_entry_whose_record_was_repaired_later(run: Run, tmp_path: Path) -> None:
    """It is in a later file than the entries behind it."""
    log = BrokerLog().append(10)
    store = log.write(tmp_path / "store")
    log.write_queues(store)
    segment = store / "commitlog" / f"{0:020d}"
    magic_code = len(log.data) // 2 + log.data[len(log.data) // 2 :].index(V1.to_bytes(4, "big", signed=True))
    segment.write_bytes(segment.read_bytes()[:magic_code] + b"abcd" + segment.read_bytes()[magic_code + 4 :])
    given = ("--store", store, "--warehouse", tmp_path / "w")
    assert run(nightly, *given).code == 0
    log.write(store)
    assert "1 message" in run(nightly, *given).error
    assert run(verify, *given).out.startswith("identical")


@pytest.mark.parametrize("nights", [1, 2])
def test_a_queue_that_was_created_again(run: Run, tmp_path: Path, nights: int) -> None:
    """The broker deleted the old queue with its topic, or as mqadmin cleanExpiredCQ does. The old messages stay."""
    log, store = BrokerLog().append(7), tmp_path / "store"
    given = ("--store", log.write(store), "--warehouse", tmp_path / "w")
    if nights == 2:
        assert run(nightly, *given).code == 0
    log.queues.clear()
    written(log.append(4), store)
    assert run(nightly, *given).code == 0
    assert run(verify, *given).out.startswith("identical")
    flip(store / "consumequeue" / "T" / "0" / f"{0:020d}", 20 * 2 + 11)
    assert "T/0: consumequeue/00000000000000000000, entry 2: size is " in run(verify, *given).out


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_topic_that_was_deleted(run: Run, tmp_path: Path, is_deleted: bool) -> None:
    """The broker deletes the files of its queues at once, and keeps its messages in the log."""
    log, store = BrokerLog().append(5).append(5, topic="U"), tmp_path / "store"
    given = ("--store", log.write(store), "--warehouse", tmp_path / "w")
    assert run(nightly, *given).code == 0
    del log.queues["T", 0]
    log.write_queues(store)
    topics = {name: {"readQueueNums": 1} for name in ("T", "U") if name == "U" or not is_deleted}
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    ended = run(verify, *given)
    assert ("the file is missing" in ended.out, ended.code) == ((False, 0) if is_deleted else (True, 3))


MULTI_DISPATCHED = (
    "4.9.7", "4.9.7_without_lmq", "5.0.0", "5.1.0", "5.1.1", "5.1.3", "5.1.4", "5.2.0", "5.3.0", "5.3.3", "5.5.0",
    "5.5.0_rocksdb",
)  # fmt: skip
"""Stores with enableMultiDispatch. Messages name also an LMQ that stands twice, and one that no file can have."""


def multi_dispatched(name: str, run: Run, warehouse: Path) -> Path:
    """The store, of which a night was run."""
    given = capture("multi_dispatch")
    files = given / "subscription_events.jsonl", given / "broker.conf"
    version = ("--rocketmq-version", name.partition("_")[0])
    assert run(nightly, *night(warehouse, given / name, *files, *version)).code == 0
    return given / name


@pytest.mark.parametrize("name", MULTI_DISPATCHED)
def test_queues_that_get_messages_of_other_topics(name: str, run: Run, tmp_path: Path) -> None:
    store = multi_dispatched(name, run, tmp_path / "w")
    ended = run(verify, "--warehouse", tmp_path / "w", "--store", store)
    assert (ended.error, ended.code) == ("", 0), ended.out


@pytest.mark.parametrize(("name", "last"), [("4.9.7", 9), ("5.1.4", 7), ("5.5.0", 5)])
def test_damage_in_queues_that_get_messages_of_other_topics(name: str, last: int, run: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(multi_dispatched(name, run, tmp_path / "w"), store)
    queue = store / "consumequeue/%LMQ%light/0/00000000000000000000"
    flip(queue, 20 * last + 19)
    flip(queue, 20 * (last + 1) + 19)
    shutil.rmtree(store / "consumequeue/%LMQ%b")
    shutil.copytree(store / "consumequeue/%LMQ%light", store / "consumequeue/%LMQ%Phantom")
    ended = run(verify, "--warehouse", tmp_path / "w", "--store", store)
    file = "consumequeue/00000000000000000000"
    assert ended.out.splitlines() == [
        "%LMQ%Phantom/0: consumequeue: no message of the log belongs to this queue",
        f"%LMQ%b/0: {file}: the file is missing",
        f"%LMQ%light/0: {file}, entry {last}: tags_code is 3433165, should be 3433164",
        f"%LMQ%light/0: {file}, entry {last + 1}: something other than zeros follows the last entry",
    ]
