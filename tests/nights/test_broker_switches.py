"""The switches that apply without --broker-config, and the message about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import deliver, dispatch, ingest, nightly, register
from schemas.errors import UsageError
from tests.captures import capture, rows
from tests.nights.commands import rows_of


def test_bit_maps_count_as_on_where_the_store_has_an_extension(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = capture("small") / "store"
    events = capture("small") / "subscription_events.jsonl"
    nightly.main(["--store", str(store), "--subscriptions", str(events), "--warehouse", str(tmp_path)])
    told = capsys.readouterr().out
    assert f"the bit map as on, since {store} has a consumequeue_ext" in told
    made = [row for row in rows_of(tmp_path, "consumequeue") if row["filter_bit_map"] is not None]
    entries = [entry for entry in rows("small", "consumequeue") if entry.get("ext") and entry["ext"]["bitMap"]]
    assert {(row["commitlog_offset"], row["filter_bit_map"].hex()) for row in made} == {
        (entry["commitLogOffset"], entry["ext"]["bitMap"]) for entry in entries
    }
    for job in (dispatch, deliver):
        job.main(["--warehouse", str(tmp_path)])
        told = capsys.readouterr().out
        assert "property filter on, filter bit map on\n  (no --broker-config: as in the last run)\n" in told
        assert "nothing new" in told

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
    with pytest.raises(UsageError, match="brokers broker-a, broker-b: choose one"):
        deliver.main(["--warehouse", str(tmp_path)])


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
