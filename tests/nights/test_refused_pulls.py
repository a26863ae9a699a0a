"""A subscription that the broker refuses: its messages wait until it is corrected."""

from __future__ import annotations

from functools import partial

from jobs import explain, lag, pulls
from tests.broker_log import EVERY
from tests.nights.commands import rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql

REFUSED, EVERYTHING, EVEN = "n > 'x'", "n IS NOT NULL", "n IN ('0','2','4','6','8','10','12','14','16','18')"


def available_at(broker: GrowingBroker) -> dict[int, int]:
    return {row["queue_offset"]: row["available_at"] for row in rows_of(broker.folder / "w", "deliveries")}


def check(broker: GrowingBroker, expected: list[int]) -> None:
    assert broker.received("cg") == expected
    assert broker.passes_audits()


def test_the_corrected_subscription_filters_what_waited(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", EVERYTHING), sql(after(4), "cg", REFUSED), sql(after(8), "cg", EVEN)])
    check(broker, [0, 1, 2, 3, 4, 6, 8])
    assert available_at(broker)[4] == available_at(broker)[6] == after(8)
    assert available_at(broker)[8] > after(8)


def test_it_is_corrected_nights_later(broker: GrowingBroker) -> None:
    events = [sql(BEFORE, "cg", EVERYTHING), sql(after(4), "cg", REFUSED)]
    broker.night(events)
    check(broker, [0, 1, 2, 3])
    broker.grow()
    broker.night(events)
    check(broker, [0, 1, 2, 3])
    broker.grow()
    broker.night([*events, sql(after(25), "cg", EVEN)])
    check(broker, [0, 1, 2, 3, *range(4, 20, 2)])


def test_a_group_that_was_refused_from_the_start_begins_at_the_first_message(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", REFUSED), sql(after(8), "cg", EVEN)])
    check(broker, [0, 2, 4, 6, 8])


def test_a_refused_group_that_leaves_and_comes_back(broker: GrowingBroker) -> None:
    leave = event(after(6), "unregister", "cg")
    broker.night([sql(BEFORE, "cg", EVERYTHING), sql(after(4), "cg", REFUSED), leave, sql(after(8), "cg", EVEN)])
    check(broker, [0, 1, 2, 3, 4, 6, 8])


def test_a_reset_while_it_is_refused(broker: GrowingBroker) -> None:
    reset = event(after(6), "reset_offset", "cg", queue_id=0, offset=2)
    broker.night([sql(BEFORE, "cg", EVERYTHING), sql(after(4), "cg", REFUSED), reset, sql(after(8), "cg", EVEN)])
    check(broker, [0, 1, 2, 2, 3, 4, 6, 8])


def test_explain_and_lag_say_that_it_is_refused(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", EVERYTHING), sql(after(4), "cg", REFUSED)])
    given = ("--warehouse", broker.folder / "w", "--group", "cg")
    message = broker.run(explain, *given, "--topic", "T", "--queue", "0", "--offset", "5").out
    assert "the broker refuses the group's pulls (FILTER_DATA_NOT_EXIST), so the group has not pulled it yet" in message
    assert "refused: FILTER_DATA_NOT_EXIST" in broker.run(lag, *given).out
    [row] = rows_of(broker.folder / "w", "current_offsets", "decided_to", "queue_end")
    assert row == {"decided_to": 4, "queue_end": 10}


def test_explain_says_that_it_was_refused_when_its_offset_was_moved(broker: GrowingBroker) -> None:
    broker.commit(broker.log.time, cg=8)
    broker.night([sql(BEFORE, "cg", REFUSED)])
    place = ("--topic", "T", "--queue", "0", "--offset", "5", "--group", "cg")
    message = broker.run(explain, "--warehouse", broker.folder / "w", *place).out
    assert "moved past it while the broker refused the group's pulls (FILTER_DATA_NOT_EXIST)" in message


def test_messages_that_waited_for_the_property_filter(broker: GrowingBroker) -> None:
    """It is switched on after the first night; the subscription stays."""
    (broker.folder / "broker.conf").write_text("brokerName=b\nenablePropertyFilter=false\n")
    lines = [sql(BEFORE, "cg", EVERYTHING), event(BEFORE, "register", "cg_tag", expression="*", consume_from="first")]
    broker.night(lines)
    assert broker.received("cg") == []
    switched = after(9) + EVERY // 2 + 1
    (broker.folder / "broker.conf").write_text("brokerName=b\nenablePropertyFilter=true\n")
    broker.grow()
    for warehouse, more in (("w", ()), ("w", ("--redo-from", switched))):
        ended = broker.night(lines, *more, warehouse=warehouse)
    assert ended.code == 0
    assert broker.received("cg") == broker.received("cg_tag") == list(range(20))
    when = {
        (row["consumer_group"], row["queue_offset"]): row["available_at"]
        for row in rows_of(broker.folder / "w", "deliveries")
    }
    assert {when["cg", offset] for offset in range(10)} == {switched}
    assert [when["cg", offset] for offset in (10, 19)] == [after(10) + EVERY // 2, after(19) + EVERY // 2]
    assert when["cg_tag", 5] == after(5) + EVERY // 2
    assert broker.passes_audits()


def test_a_property_filter_that_is_off_is_named_once(broker: GrowingBroker) -> None:
    (broker.folder / "broker.conf").write_text("brokerName=b\n")
    lines = [sql(BEFORE, f"cg_{number}", EVEN) for number in range(5)] + [event(after(3), "unregister", "cg_0")]
    out = broker.night(lines).out
    cause = "SYSTEM_ERROR: enablePropertyFilter is off"
    assert out.count("refuses") == 1
    assert f"the broker refuses every pull of cg_0 on T, cg_1 on T, cg_2 on T and 2 more with {cause}" in out
    asked = ("--warehouse", broker.folder / "w", "--group", "cg_1")
    assert cause in broker.run(explain, *asked, "--topic", "T", "--queue", 0, "--offset", 3).out
    assert cause in broker.run(pulls, *asked, "--topic", "T").error


def test_a_group_that_was_refused_from_the_start_begins_where_it_was_refused(broker: GrowingBroker) -> None:
    """One queue of the topic has lost its first message, and the other has not."""
    broker.log.append(300).append(3, queue_id=1)
    refused_at = broker.log.time - EVERY // 2
    broker.log.append(5)
    corrected_at = broker.log.time - EVERY // 2
    broker.log.append(2)
    store = broker.log.write(broker.folder / "store", broker.log.segment)
    broker.log.write_queues(store)
    subscribe = partial(event, op="register", group="cg", type="SQL92", consume_from="last")
    broker.night([subscribe(refused_at, expression=REFUSED), subscribe(corrected_at, expression=EVERYTHING)])
    check(broker, [0, 1, 2, *range(310, 317)])
