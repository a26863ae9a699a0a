"""The switches that apply without --broker-config, and the message about them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from filtering.broker_config import read_properties
from jobs import deliver, dispatch, explain, ingest, lint, maintain, nightly, register
from schemas.errors import UsageError
from tests.captures import PUBLIC, capture, rows
from tests.nights.commands import differing, night, rows_of
from tests.nights.growing_broker import BEFORE, LOW, GrowingBroker, after, event, sql


def test_bit_maps_count_as_on_where_the_store_has_an_extension(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = capture("small") / "store"
    events = capture("small") / "subscription_events.jsonl"
    nightly.main(["--store", str(store), "--subscriptions", str(events), "--warehouse", str(tmp_path)])
    out = capsys.readouterr().out
    assert f"the bit map as on, since {store} has a consumequeue_ext" in out
    made = [row for row in rows_of(tmp_path, "consumequeue") if row["filter_bit_map"] is not None]
    entries = [entry for entry in rows("small", "consumequeue") if entry.get("ext") and entry["ext"]["bitMap"]]
    assert {(row["commitlog_offset"], row["filter_bit_map"].hex()) for row in made} == {
        (entry["commitLogOffset"], entry["ext"]["bitMap"]) for entry in entries
    }
    for job in (dispatch, deliver):
        job.main(["--warehouse", str(tmp_path)])
        out = capsys.readouterr().out
        assert "property filter on, filter bit map on\n  (no --broker-config: as in the last run)\n" in out
        assert "nothing new" in out

    plain = capture("plain")
    conf = tmp_path / "other.conf"
    conf.write_text((plain / "broker.conf").read_text() + "brokerName=broker-b\n")
    ingest.main(
        [
            "--store", str(plain / "store"),
            "--warehouse", str(tmp_path),
            "--broker-config", str(conf),
        ]
    )  # fmt: skip
    with pytest.raises(UsageError, match="brokers broker-a, broker-b: choose one with brokerName in --br"):
        deliver.main(["--warehouse", str(tmp_path)])


@pytest.mark.parametrize("name", ["b", "broker-7"])
def test_a_store_that_is_of_another_broker(broker: GrowingBroker, name: str) -> None:
    """Each broker has a topic with its name, as topics.json of real ones shows."""
    config = broker.folder / "store" / "config"
    config.mkdir()
    topic = {f"rmq_sys_SYNC_BROKER_MEMBER_{name}": {"readQueueNums": 1}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topic}))
    out = broker.night([]).out
    remark = f"the topics.json of the store is of {name}, and the messages are stored as those of b:"
    assert (remark in out) is (name == "broker-7"), out


@pytest.mark.parametrize("name", ["blank", "comment", "semicolon"])
def test_a_night_goes_on_with_what_the_broker_takes_and_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    conf = PUBLIC / "broker-conf-values" / f"{name}.conf"
    log, subscriptions = PUBLIC / "unquoted-text" / "log.jsonl", PUBLIC / "unquoted-text" / "subscriptions.yaml"
    nightly.main(night(tmp_path / "w", log, subscriptions, conf))
    out = capsys.readouterr().out
    assert "\nSQL92 is off: broker.conf has enablePropertyFilter='true" in out
    assert ", which the broker takes as false; write enablePropertyFilter=true\n" in out
    assert "broker broker-a: property filter off" in out
    asked = ["--warehouse", str(tmp_path / "w")]
    why = "SQL92 is off: broker.conf has enablePropertyFilter='true"
    explain.main([*asked, "--message", "p0", "--group", "g_beijing"])
    assert f"enablePropertyFilter is off), so the group has not pulled it yet; {why}" in capsys.readouterr().out
    lint.main(asked)
    assert f"SYSTEM_ERROR: enablePropertyFilter is off: {why}" in capsys.readouterr().out
    nightly.main(night(tmp_path / "w2", log, subscriptions, PUBLIC / "unquoted-text" / "broker.conf"))
    with pytest.raises(UsageError, match=r"enablePropertyFilter was true and is false; SQL92 is off: broker\.conf has"):
        nightly.main(night(tmp_path / "w2", log, subscriptions, conf))


def test_a_night_ignores_a_key_that_the_broker_ignores_and_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, events = (PUBLIC / "waiting-delay-message" / name for name in ("log.jsonl", "events.jsonl"))
    nightly.main(night(tmp_path, log, events, PUBLIC / "broker-conf-maped" / "broker.conf", "--strict"))
    out = capsys.readouterr().out
    assert "property filter on" in out
    for key, size in (("CommitLog", 1 << 30), ("ConsumeQueue", 6_000_000)):
        ignored = f"the broker ignores 'mapedFileSize{key}', which it does not know: mappedFileSize{key} is {size} ("
        assert ignored in out


def test_bit_maps_count_as_off_where_it_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    register.main(["--subscriptions", "conf/subscriptions.example.yaml", "--warehouse", str(tmp_path / "other")])
    assert "(no --broker-config: the property filter counts as on, the bit map as off)" in capsys.readouterr().out
    store = capture("plain") / "store"
    ingest.main(["--store", str(store), "--warehouse", str(tmp_path / "w")])
    assert f"the bit map as off, since {store} has no consumequeue_ext" in capsys.readouterr().out
    dispatch.main(["--warehouse", str(tmp_path / "w")])
    entries = list(rows_of(tmp_path / "w", "consumequeue"))
    assert entries
    assert not any(row["filter_bit_map"] for row in entries)


def switch(broker: GrowingBroker, name: str, value: str) -> None:
    conf = broker.folder / "broker.conf"
    others = [line for line in conf.read_text().splitlines() if not line.startswith(f"{name}=")]
    conf.write_text("\n".join([*others, f"{name}={value}\n"]))


def next_night(broker: GrowingBroker) -> None:
    """A night after the last one, with switches that changed between them."""
    broker.grow()
    since = max(row["as_of"] for row in rows_of(broker.folder / "w", "run_ledger")) + 1
    assert broker.night([sql(BEFORE, "cg", LOW)], "--redo-from", since).code == 0


def explained(broker: GrowingBroker, offset: int) -> str:
    place = "--topic", "T", "--queue", 0, "--offset", offset, "--group", "cg"
    return broker.run(explain, "--warehouse", broker.folder / "w", *place).out


def test_a_message_is_explained_with_the_switches_of_its_night(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", LOW)])
    switch(broker, "enablePropertyFilter", "false")
    next_night(broker)
    assert "stage 1, filter bit map" in explained(broker, 7)
    assert "the broker refuses the group's pulls" in explained(broker, 12)
    switch(broker, "enablePropertyFilter", "true")
    switch(broker, "enableCalcFilterBitMap", "false")
    next_night(broker)
    assert "stage 1, filter bit map" in explained(broker, 7)
    assert "stage 2, expression" in explained(broker, 22)


def test_a_message_is_explained_after_the_cleaning_of_dead_filters_changed(broker: GrowingBroker) -> None:
    """The cleaning ends a state of the subscription that deliveries name."""
    subscription = {"topic": "T", "type": "SQL92", "expression": LOW}
    away = {"at": BEFORE + 2_000, "op": "heartbeat", "group": "cg", "subscriptions": []}
    events = [
        sql(BEFORE, "cg", LOW),
        json.dumps({"at": BEFORE + 1, "op": "pull_subscription", "group": "cg", **subscription}),
        json.dumps(away),
    ]
    switch(broker, "filterDataCleanTimeSpan", "500")
    broker.night(events)
    switch(broker, "filterDataCleanTimeSpan", "86400000")
    broker.grow()
    since = max(row["as_of"] for row in rows_of(broker.folder / "w", "run_ledger")) + 1
    assert broker.night(events, "--redo-from", since).code == 0
    assert "cg: delivered" in explained(broker, 4)


def bits_of(broker: GrowingBroker, *keys: str) -> bytes:
    config = read_properties((broker.folder / "broker.conf").read_text()).config
    return config.bloom_filter.bit_map(keys)


def test_another_bloom_filter_discards_the_filters_of_groups_that_left(broker: GrowingBroker) -> None:
    """When the broker starts, it ignores the filters in its file if they belong to another Bloom filter."""
    any_n = "n IS NOT NULL"
    events = [sql(BEFORE, "stays", any_n), sql(BEFORE, "left", any_n), event(BEFORE + 1, "unregister", "left")]
    broker.night(events)
    both = bits_of(broker, "stays#T", "left#T")
    switch(broker, "expectConsumerNumUseFilter", "64")
    broker.grow()
    since = max(row["as_of"] for row in rows_of(broker.folder / "w", "run_ledger")) + 1
    assert broker.night(events, "--redo-from", since).code == 0
    broker.grow()
    assert broker.night([*events, sql(after(25), "left", any_n)]).code == 0
    maps = {row["queue_offset"]: row["filter_bit_map"] for row in rows_of(broker.folder / "w", "consumequeue")}
    assert [maps[offset] for offset in range(10)] == [both] * 10
    assert [maps[offset] for offset in range(10, 25)] == [bits_of(broker, "stays#T")] * 15
    assert [maps[offset] for offset in range(25, 30)] == [bits_of(broker, "stays#T", "left#T")] * 5
    born = {row["born_time"] for row in rows_of(broker.folder / "w", "subscriptions") if row["registered"]}
    assert born == {BEFORE, since, after(25)}
    assert broker.passes_audits()
    repeated = broker.facts()
    next((broker.folder / "w" / "consumequeue").rglob("*.parquet")).unlink()
    assert broker.run(maintain, "--warehouse", broker.folder / "w", "--rebuild").code == 0
    assert differing(broker.facts(), repeated) == []


def test_a_rebuild_uses_the_switches_of_the_repeated_nights(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", LOW)]
    broker.night(events)
    switch(broker, "expectConsumerNumUseFilter", "64")
    broker.grow()
    assert broker.night(events, "--redo-from", 0).code == 0
    repeated = broker.facts()
    next((broker.folder / "w" / "consumequeue").rglob("*.parquet")).unlink()
    assert broker.run(maintain, "--warehouse", broker.folder / "w", "--rebuild").code == 0
    assert differing(broker.facts(), repeated) == []
