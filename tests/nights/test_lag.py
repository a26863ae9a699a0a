"""lag: its counts against the messages that consumers really received later."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from answers import warehouse as door
from answers.facts import BrokerFacts, NewerState, open_facts
from answers.lag import FIELDS, lag
from jobs import lag as lag_job
from jobs import nightly
from schemas.delta.warehouse import Warehouse
from tests.broker_log import BrokerLog
from tests.captures import rows
from tests.nights.commands import NIGHTS, Run

NEVER_BACK = {("cg_sql_gone", "DeviceTelemetry"), ("cg_two_topics", "TagLab")}
DELETED_FIRST = {("cg_expired", "OrderEvents")}
"""The broker deleted some of its messages before it came back."""


def facts_after(nights: Path, night: int) -> BrokerFacts:
    return open_facts(Warehouse.at(str(nights / str(night))))


def received_later(night: int) -> set[tuple[str, str, int, int]]:
    """Group, topic, queue and offset of what consumers received after a night."""
    return {
        (row["group"], row["topic"], row["queueId"], row["queueOffset"])
        for row in rows("nights_dev", "live")
        if row["night"] > night
    }


def came_back_otherwise(nights: Path, night: int) -> set[tuple[str, str]]:
    """Groups away after a night that came back with another expression."""
    at = facts_after(nights, night).as_of
    later = [row for row in facts_after(nights, 4).history if row.valid_to is None or row.valid_to > at]
    said: dict[tuple[str, str], list[str | None]] = {}
    for row in later:
        said.setdefault((row.consumer_group, row.topic), []).append(row.expression)
    return {key for key, expressions in said.items() if len(set(expressions)) > 1}


@pytest.mark.parametrize("night", NIGHTS)
def test_exact_lag_is_what_consumers_received_later(nights: Path, night: int) -> None:
    later, checked, waiting = received_later(night), Counter[bool](), 0
    unlike = NEVER_BACK | DELETED_FIRST | came_back_otherwise(nights, night)
    for row in lag(facts_after(nights, night)):
        if (row.consumer_group, row.topic) in unlike and not row.is_consuming:
            continue
        place = row.consumer_group, row.topic, row.queue_id
        got = [offset for offset in range(row.position, row.end) if (*place, offset) in later]
        assert row.would_get == len(got), (night, row)
        checked[row.behind > 0] += 1
        waiting += row.would_get
    assert checked[False] > 100
    if night == 2:
        assert (checked[True], waiting) == (9, 176)


def test_a_group_that_keeps_up_waits_for_nothing_whatever_its_offset_says(nights: Path) -> None:
    for night in NIGHTS:
        for row in lag(facts_after(nights, night)):
            if row.is_consuming:
                assert (row.would_get, row.oldest_at) == (0, None)


def test_what_the_broker_deleted_reaches_nobody(nights: Path) -> None:
    """A message deleted before night 3 no longer counts; entries count, as in the broker's number."""
    before, after = (lag(facts_after(nights, night), groups=["cg_expired"]) for night in (2, 3))
    assert sum(row.behind for row in after) > sum(row.behind for row in before)
    assert min(row.oldest_at or 0 for row in after) > max(row.oldest_at or 0 for row in before)


def test_the_oldest_is_the_first_that_the_group_would_get(nights: Path) -> None:
    stored = {
        (row["topic"], row["queueId"], row["queueOffset"]): row["storeTimestamp"]
        for row in rows("nights_dev", "messages")
        if not row.get("blank")
    }
    facts = facts_after(nights, 2)
    later = received_later(2)
    changed = came_back_otherwise(nights, 2) | NEVER_BACK | DELETED_FIRST
    for row in lag(facts):
        if row.would_get and (row.consumer_group, row.topic) not in changed:
            place = row.consumer_group, row.topic, row.queue_id
            assert row.position is not None
            assert row.oldest_at is not None
            first = min(o for o in range(row.position, row.end) if (*place, o) in later)
            assert row.oldest_at == stored[row.topic, row.queue_id, first]
            assert row.oldest_ms == facts.as_of - row.oldest_at


def two_groups(folder: Path) -> list[str]:
    """A night of 40 messages, every second tagged paid, and two groups that are online."""
    log = BrokerLog()
    for _ in range(20):
        log.append(TAGS="paid", price="60.5").append(TAGS="open", price="1.5")
    events = folder / "subscriptions.yaml"
    events.write_text(
        "- {group: cg_tag, topic: T, tag: paid}\n- {group: cg_sql, topic: T, sql: price > 50.0}\n"
        "- {group: cg_refused, topic: T, sql: price >}\n"
    )
    store = log.write(folder / "store")
    return ["--store", str(store), "--subscriptions", str(events), "--warehouse", str(folder / "w")]


def test_the_broker_counts_what_passes_its_first_filter(tmp_path: Path) -> None:
    nightly.main(two_groups(tmp_path))
    newer = NewerState({("cg_tag", "T"): {0: 10}, ("cg_sql", "T"): {0: 10}})
    facts = replace(open_facts(Warehouse.at(str(tmp_path / "w"))), newer=newer)
    rows = {row.consumer_group: row for row in lag(facts)}
    tag_row, sql_row = rows["cg_tag"], rows["cg_sql"]
    assert (tag_row.behind, tag_row.would_get, tag_row.broker_estimate) == (30, 15, 15)
    # Without a filter bit map the broker's first filter passes everything.
    assert (sql_row.behind, sql_row.would_get, sql_row.broker_estimate) == (30, 15, 30)
    assert (rows["cg_refused"].would_get, rows["cg_refused"].refusal) == (0, "FILTER_DATA_NOT_EXIST")


def test_offsets_of_about_the_same_time_tell_nothing_new(tmp_path: Path) -> None:
    nightly.main(two_groups(tmp_path))
    facts = open_facts(Warehouse.at(str(tmp_path / "w")))
    facts = replace(facts, newer=NewerState({("cg_sql", "T"): {0: 39}}, facts.as_of + 1_000))
    (row,) = lag(facts, groups=["cg_sql"])
    assert (row.behind, row.would_get, row.position) == (1, 0, 40)


def test_a_newer_offset_table_counts(tmp_path: Path, run: Run) -> None:
    nightly.main(two_groups(tmp_path))
    newer = tmp_path / "consumerOffset.json"
    newer.write_text('{"offsetTable":{"T@cg_sql":{0:36}}}')
    code, out, _ = run(lag_job, "--warehouse", tmp_path / "w", "--group", "cg_sql", "--offsets", newer, "--json")
    row = json.loads(out)
    assert (code, row["committed"], row["behind"], row["would_get"], row["estimate_error"]) == (0, 36, 4, 2, 2)
    groups = ("--group", "cg_sql", "--group", "cg_tag")
    out = run(lag_job, "--warehouse", tmp_path / "w", *groups, "--offsets", newer).out
    assert out.endswith(f"; committed offsets of {newer}, without cg_tag\n")
    newer.write_text('{"offsetTable":{"T@cg_sql":{"0":"x"}}}')
    ended = run(lag_job, "--warehouse", tmp_path / "w", "--offsets", newer)
    assert (ended.code, f"{newer} has no offset that can be read; {OFFSETS_ADVICE}" in ended.error) == (2, True)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{}", "has no offsetTable"),
        ('{"topicConfigTable":{}}', "has no offsetTable"),
        ('{"offsetTable":[]}', "has no offsetTable"),
        ("brokerName=b", "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("{}\n{}", "is not JSON: Extra data: line 2 column 1 (char 3)"),
    ],
)
def test_a_file_that_has_no_offsets(nights: Path, tmp_path: Path, run: Run, content: str, why: str) -> None:
    file = tmp_path / "topics.json"
    file.write_text(content)
    message = f"mqsieve: {file} {why}; {OFFSETS_ADVICE}\n"
    assert run(lag_job, "--warehouse", nights / "4", "--offsets", file) == (2, "", message)


OFFSETS_ADVICE = "give config/consumerOffset.json of the broker's store"


def test_prometheus_text_escapes_names(tmp_path: Path, run: Run) -> None:
    store = BrokerLog().append(3).write(tmp_path / "store")
    (tmp_path / "s.jsonl").write_text(
        '{"at":0,"op":"register","group":"a\\"b\\\\c\\nd\\u0007","topic":"T","type":"TAG","expression":"*","sub_version":1}\n'
    )
    nightly.main(
        ["--store", str(store), "--subscriptions", str(tmp_path / "s.jsonl"), "--warehouse", str(tmp_path / "w")]
    )
    out = run(lag_job, "--warehouse", tmp_path / "w", "--prometheus").out
    line = 'mqsieve_consumer_lag_messages{broker="DEFAULT_BROKER",group="a\\"b\\\\c\\nd\\\\x07",topic="T",queue="0"} 0'
    assert line in out.splitlines()
    for line in out.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ", "mqsieve_"))


def test_people_read_group_topic_and_what_waits(nights: Path, run: Run) -> None:
    out = run(lag_job, "--warehouse", nights / "4").out
    line = next(line for line in out.splitlines() if line.startswith("cg_sql_gone"))
    assert line.split()[1:6] == ["DeviceTelemetry", "389", "103", "none", "-"]
    code, _, error = run(lag_job, "--warehouse", nights / "4", "--group", "cg_sql_gon")
    assert (code, "did you mean cg_sql_gone?" in error) == (2, True)
    code, _, error = run(lag_job, "--warehouse", nights / "4", "--topic", "OrderEvent")
    assert (code, "there is no topic OrderEvent in" in error, "did you mean OrderEvents?" in error) == (2, True, True)


def test_several_groups_are_shown_queue_by_queue(nights: Path, run: Run) -> None:
    groups = ("cg_all_devices", "cg_sql_gone")
    out = run(lag_job, "--warehouse", nights / "4", *(text for group in groups for text in ("--group", group))).out
    titles, *lines, _ = out.splitlines()
    assert titles.split()[:3] == ["group", "topic", "queue"]
    assert {line.split()[0] for line in lines} == set(groups)
    assert len({tuple(line.split()[:3]) for line in lines}) == len(lines) > 2


def test_fields_are_those_that_docs_promise() -> None:
    page = (Path(__file__).parents[2] / "docs" / "JSON.md").read_text("utf-8")
    for name in FIELDS:
        assert f"| `{name}` |" in page
    for older, name in lag_job.OLDER_KEYS.items():
        assert f"| `{name}` | `{older}` |" in page


def test_table_json_and_python_have_the_same_words(nights: Path, run: Run) -> None:
    given = ("--warehouse", nights / "4")
    titles = re.split(r"  +", run(lag_job, *given).out.splitlines()[0].strip())
    words = {"oldest": "oldest_ms", "group": "consumer_group"}
    named = {words.get(title, title.replace(" ", "_")) for title in titles}
    rows = [json.loads(line) for line in run(lag_job, *given, "--json").out.splitlines()]
    frame = door.open(str(nights / "4")).lag().to_pandas()
    assert named <= set(rows[0]) & set(frame.columns)
    assert set(frame.columns) == set(FIELDS)
    assert {row["pulls"] for row in rows} == set(frame["pulls"]) >= {"online", "away"}
    for row in rows:
        assert all(row[older] == row[name] for older, name in lag_job.OLDER_KEYS.items())


@pytest.fixture(scope="module")
def with_strange_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse whose log has the topics T, U and V."""
    folder = tmp_path_factory.mktemp("strange")
    log = BrokerLog().append(3, "T").append(3, "U").append(3, "V")
    log.write(folder / "store")
    entries = [("cg", "T", 0), ("cg_typo", "Tt", 0), ("cg_two", "U", 0), ("cg_two", "T", 0), ("cg_late", "T", 2**41)]
    lines = [f"- {{group: {group}, topic: {topic}, tag: '*', at: {at}}}\n" for group, topic, at in entries]
    (folder / "s.yaml").write_text("".join(lines))
    given = ["--store", folder / "store", "--subscriptions", folder / "s.yaml", "--warehouse", folder / "w"]
    nightly.main(list(map(str, given)))
    return folder / "w"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--group", "cg_two", "--topic", "V"), "cg_two has no subscription to V; it subscribes to T, U"),
        (("--group", "cg", "--topic", "Tt"), "cg has no subscription to Tt; did you mean T?"),
    ],
)
def test_a_topic_to_which_a_group_does_not_subscribe(
    with_strange_groups: Path, run: Run, given: tuple[str, ...], message: str
) -> None:
    ended = run(lag_job, "--warehouse", with_strange_groups, *given)
    assert (ended.code, ended.out, ended.error) == (2, "", f"mqsieve: {message}\n")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--group", "cg_typo"), "no message of the log has the topic Tt; did you mean T?"),
        (("--topic", "Tt"), "no message of the log has the topic Tt; did you mean T?"),
        (("--topic", "V"), "no group subscribes to V; groups subscribe to T, Tt, U"),
        (
            ("--group", "cg_late"),
            "no night has filtered messages for cg_late yet: the first subscription begins at 2039-09-07 15:47:35.552",
        ),
    ],
)
def test_why_there_is_no_queue_to_be_behind_in(
    with_strange_groups: Path, run: Run, given: tuple[str, ...], message: str
) -> None:
    ended = run(lag_job, "--warehouse", with_strange_groups, *given)
    assert (ended.code, ended.out.splitlines()[0], ended.error) == (0, message, "")
    assert "0 of 0" not in ended.out
    assert run(lag_job, "--warehouse", with_strange_groups, *given, "--json").out == ""
