"""answers.warehouse, the interface for notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from answers import warehouse
from jobs import nightly
from schemas.errors import UsageError
from tests.broker_log import BrokerLog
from tests.nights.commands import rows_of
from tests.replayed import Replayed

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> warehouse.OpenWarehouse:
    """A warehouse whose group, topic, key and properties are HTML."""
    folder = tmp_path_factory.mktemp("hostile")
    store = BrokerLog().append(3, topic=HOSTILE, KEYS=HOSTILE, TAGS=HOSTILE, a=HOSTILE).write(folder / "store")
    (folder / "s.yaml").write_text(
        f'- {{group: "{HOSTILE}", topic: "{HOSTILE}", sql: "a = \'<b>\'"}}\n'
        f'- {{group: g, topic: "{HOSTILE}", tag: t}}\n'
    )
    given = ("--store", store, "--subscriptions", folder / "s.yaml", "--warehouse", folder / "w")
    nightly.main(list(map(str, given)))
    return warehouse.open(str(folder / "w"))


def test_hostile_names_stay_text(hostile: warehouse.OpenWarehouse) -> None:
    shown: list[Any] = [
        hostile.why(HOSTILE),
        hostile.why_at(HOSTILE, 0, 0, HOSTILE),
        hostile.lag(),
        hostile.deliveries,
        hostile.messages,
        hostile.subscriptions,
        hostile.findings(),
        hostile.advice(),
        hostile.summary(),
        hostile.what_if(HOSTILE, sql="a <> '<b>'", topic=HOSTILE),
        hostile.what_if("g", sql="a IS NOT NULL"),
    ]
    for each in shown:
        html = each._repr_html_()
        assert "<script>" not in html
        assert "<b><" not in html
    assert "&lt;script&gt;" in shown[0]._repr_html_()


def test_a_python_prompt_shows_short_texts(replayed: Replayed, hostile: warehouse.OpenWarehouse) -> None:
    opened = warehouse.open(replayed("small").location)
    assert repr(opened) == f"{replayed('small').location}, broker broker-a"
    assert repr(opened.why("ord-370", "cg_sql_region_price")) == (
        "ord-370  OrderEvents 0/56 → cg_sql_region_price: not delivered\n"
        "  stopped at  stage 1, filter bit map: the expression did not match when the message was stored\n"
        "  because     region = 'hangzhou'  ✗  region is 'us-east'\n"
        "              price > 50.0         ·  price is missing\n"
        "  would match with price = '50.01' and region = 'hangzhou'"
    )
    wider = repr(opened.what_if("cg_sql_region_price", sql="price > 40.0 AND region = 'hangzhou'"))
    assert wider.splitlines()[:3] == [
        "cg_sql_region_price on OrderEvents: 5 gained, 0 lost, 21 kept",
        "",
        "- in force: SQL92 region = 'hangzhou' AND price > 50.0",
    ]
    for each, key in ((opened, "ord-370"), (hostile, HOSTILE)):
        answers: list[object] = [each.why(key), each.lag(), each.findings(), each.advice(), each.summary()]
        for answer in (*answers, each.deliveries, each.messages, each.subscriptions):
            assert 1 <= len(repr(answer).splitlines()) <= 60


def test_one_explanation_shows_its_leaves(hostile: warehouse.OpenWarehouse) -> None:
    explanations = hostile.why_at(HOSTILE, 0, 0, HOSTILE)
    assert len(explanations) == 1
    html = explanations._repr_html_()
    assert "<td>✗</td>" in html
    assert "<b>Would match</b> with <code>a = &#x27;&lt;b&gt;&#x27;</code>" in html


def test_deliveries_are_those_of_the_table(replayed: Replayed) -> None:
    opened = warehouse.open(replayed("small").location)
    expected = [row for row in rows_of(replayed("small"), "deliveries") if row["consumer_group"] == "cg_sql_city"]
    assert list(opened.deliveries.of(group="cg_sql_city")) == expected
    assert len(opened.deliveries.of("cg_sql_city", "OrderEvents").to_pandas()) == len(expected)
    nothing = opened.deliveries.of("cg_sql_city", "TagLab").to_pandas()
    assert (len(nothing), list(nothing)) == (0, [*expected[0], "available_at_utc", "subscription_from_utc"])
    assert opened.deliveries._repr_html_().count("<tr>") == 51


def test_properties_are_dictionaries(replayed: Replayed) -> None:
    messages = warehouse.open(replayed("small").location).messages.of(topic="OrderEvents")
    assert list(messages.to_pandas()["properties"]) == [message["properties"] for message in messages]


def test_answers_are_lists_with_a_frame(replayed: Replayed) -> None:
    opened = warehouse.open(replayed("small").location)
    lags = opened.lag(topic="OrderEvents")
    assert {row.topic for row in lags} == {"OrderEvents"}
    frame = lags.to_pandas()
    assert frame["would_get"].sum() == sum(row.would_get for row in lags)
    assert list(frame) == list(lags[0].fields)
    (explanation,) = opened.why("ord-370", "cg_sql_region_price")
    assert explanation.outcome == "STOPPED_BY_BIT_MAP"


def test_what_if_says_what_is_gained_and_lost(replayed: Replayed) -> None:
    opened = warehouse.open(replayed("small").location)
    wider = opened.what_if("cg_sql_region_price", sql="price > 40.0 AND region = 'hangzhou'")
    assert (len(wider.gained), len(wider.lost)) == (5, 0)
    assert "5 gained, 0 lost, " in wider._repr_html_()
    tags = opened.what_if("cg_tag_multi_topic", tags="nothing", topic="DeviceTelemetry")
    assert (len(tags.gained), len(tags.lost), tags.kept) == (0, 149, 0)
    with pytest.raises(UsageError, match="either sql or tags"):
        opened.what_if("cg_sql_city")
    with pytest.raises(UsageError, match="say which"):
        opened.what_if("cg_tag_multi_topic", tags="a")
    with pytest.raises(UsageError, match="did you mean cg_sql_city"):
        opened.what_if("cg_sql_cit", tags="a", topic="OrderEvents")


def test_findings_advice_and_the_night(replayed: Replayed) -> None:
    opened = warehouse.open(replayed("small").location)
    findings = opened.findings()
    assert findings[0].severity == "error"
    assert set(findings.to_pandas()["severity"]) == {"error", "warn", "info"}
    assert {row.topic: row.bit_map.use for row in opened.advice()} == dict.fromkeys(
        ("DeviceTelemetry", "OrderEvents", "TagLab"), True
    )
    night = opened.summary()
    delivered = [row for row in night if row.consumer_group == "cg_sql_city"]
    assert [row.counts["delivered"] for row in delivered] == [78]
    assert "fails on more than 10% of the messages" in night._repr_html_()


def test_a_broker_without_bit_maps_gets_advice(replayed: Replayed) -> None:
    advice = warehouse.open(replayed("plain").location).advice()
    assert {row.bit_map.measured_rate for row in advice} == {None}
    assert "<td>OrderEvents</td>" in advice._repr_html_()


def test_what_is_not_there_is_said(tmp_path: Path, replayed: Replayed) -> None:
    with pytest.raises(UsageError, match="no night yet"):
        warehouse.open(str(tmp_path))
    opened = warehouse.open(Path(replayed("small").location))
    with pytest.raises(UsageError, match="no message with the id or key nothing"):
        opened.why("nothing")
    with pytest.raises(UsageError, match="did you mean cg_sql_city"):
        opened.why("ord-370", "cg_sql_cit")
    with pytest.raises(UsageError, match="did you mean cg_sql_city"):
        opened.lag("cg_sql_cit")
    with pytest.raises(UsageError, match="did you mean cg_sql_city"):
        opened.deliveries.of(group="cg_sql_cit")
    with pytest.raises(UsageError, match="did you mean OrderEvents"):
        opened.messages.of(topic="OrderEvent")


def test_a_list_where_one_name_is_asked_for(replayed: Replayed) -> None:
    opened = warehouse.open(replayed("small").location)
    with pytest.raises(TypeError, match=r"^a name is a text, not list$"):
        opened.lag(["cg_all_orders"])  # type: ignore[arg-type]


class SessionWithoutDelta:
    """Stands for a Spark session without Delta's jars: all steps of reading a table are this object."""

    read = property(lambda self: self)

    def format(self, _: str) -> SessionWithoutDelta:
        return self

    def load(self, _: str) -> None:
        raise RuntimeError("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. SQLSTATE: 42K02")


def test_a_spark_session_without_delta_is_told_what_to_do(replayed: Replayed) -> None:
    session: Any = SessionWithoutDelta()
    with pytest.raises(UsageError, match=r"no Delta Lake: .*spark_session\(\), .*mqsieve\.spark\.register\(spark\)"):
        warehouse.open(replayed("small").location).subscriptions.to_spark(session)
