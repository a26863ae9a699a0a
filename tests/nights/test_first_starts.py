"""Where a group begins that mqsieve has not seen before: at an offset that the broker already has, if there is one.

In the capture `timestamps`, groups begin by CONSUME_FROM_TIMESTAMP in the second night of a broker, which had deleted
the first messages of its queues before; and one before that. `live` has what their consumers received.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from filtering.delivery.pull_window import Reason
from jobs import explain, lag, maintain, nightly, what_if
from tests.broker_log import EVERY, FIRST_TIME
from tests.captures import capture
from tests.nights.commands import Run, delivered, differing, night, received_live, rows_of
from tests.nights.growing_broker import BEFORE, GrowingBroker, after, event, sql

EVERYTHING = "n IS NOT NULL"


def check(broker: GrowingBroker, expected: list[int]) -> None:
    assert broker.received("cg") == expected
    assert broker.passes_audits()


@pytest.mark.parametrize("consume_from", ["first", "last"])
def test_a_group_that_was_away_in_the_first_night(broker: GrowingBroker, consume_from: str) -> None:
    """No event of the first night names it, but the broker has its committed offset."""
    other = sql(BEFORE, "cg_other", EVERYTHING)
    broker.commit(cg=7, cg_other=10)
    broker.night([other])
    broker.grow()
    broker.commit(cg=20, cg_other=20)
    start = event(after(15), "register", "cg", type="SQL92", expression=EVERYTHING, consume_from=consume_from)
    broker.night([other, start])
    check(broker, list(range(7, 20)))
    for again in (("--redo-from", 0), ("--redo-from", after(12))):
        assert broker.night([other, start], *again).code == 0
        check(broker, list(range(7, 20)))
    next((broker.folder / "w" / "delivery_blocks").rglob("*.parquet")).unlink()
    assert broker.run(maintain, "--rebuild", "--warehouse", broker.folder / "w").code == 0
    check(broker, list(range(7, 20)))


def test_its_committed_offset_alone_is_no_subscription(broker: GrowingBroker) -> None:
    broker.commit(cg=7)
    broker.night([sql(BEFORE, "cg_other", EVERYTHING)])
    rows = {row["consumer_group"]: row for row in rows_of(broker.folder / "w", "current_offsets")}
    assert (rows["cg"]["decided_to"], rows["cg"]["committed"]) == (None, 7)
    assert {row["consumer_group"] for row in rows_of(broker.folder / "w", "delivery_stats")} == {"cg_other"}


def test_the_messages_before_its_offset_are_explained(broker: GrowingBroker) -> None:
    other = sql(BEFORE, "cg_other", EVERYTHING)
    broker.commit(cg=7)
    broker.night([other])
    broker.grow()
    broker.night([other, sql(after(15), "cg", EVERYTHING)])
    given = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0")
    assert (
        "had committed a later offset when its first known subscription began"
        in broker.run(explain, *given, "--offset", "6").out
    )
    assert "DELIVERED" in broker.run(explain, *given, "--offset", "7", "--json").out


def damage(broker: GrowingBroker, *numbers: int) -> None:
    """Damages some messages in the store."""
    for number in numbers:
        broker.log.damage(number)
    broker.log.write(broker.folder / "store")


def gained_and_kept(broker: GrowingBroker) -> tuple[int, int]:
    """What the group gains and keeps if it takes everything."""
    given = ("--warehouse", broker.folder / "w", "--group", "cg", "--sql", EVERYTHING, "--json")
    (change,) = json.loads(broker.run(what_if, *given).out)["changes"]
    return change["gained"], change["kept"]


@pytest.mark.parametrize("damaged", [(4, 8), (4, 10)])
def test_the_messages_before_its_offset_among_damaged_ones(broker: GrowingBroker, damaged: tuple[int, ...]) -> None:
    """Two offsets have no entry; 10 is between those of two nights. The group never pulled 6, and has pulled 7."""
    other = sql(BEFORE, "cg_other", EVERYTHING)
    broker.commit(cg=7)
    damage(broker, *(number for number in damaged if number < 10))
    broker.night([other])
    broker.grow()
    damage(broker, *(number for number in damaged if number >= 10))
    broker.night([other, sql(after(15), "cg", "n IN ('6', '12')")])
    place = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0", "--offset")
    assert (
        "had committed a later offset when its first known subscription began" in broker.run(explain, *place, "6").out
    )
    assert "STOPPED_BY_EXPRESSION" in broker.run(explain, *place, "7", "--json").out
    assert gained_and_kept(broker) == (11, 1)


def test_a_group_that_began_at_the_end_gains_nothing(broker: GrowingBroker) -> None:
    other = sql(BEFORE, "cg_other", EVERYTHING)
    broker.commit(cg=10)
    damage(broker, 4)
    broker.night([other])
    broker.log.append(topic="U").write(broker.folder / "store")
    broker.night([other, sql(after(10), "cg", EVERYTHING)])
    assert gained_and_kept(broker) == (0, 0)


def test_a_group_that_never_pulled_gains_nothing(broker: GrowingBroker) -> None:
    broker.night([sql(BEFORE, "cg", "n >")])
    assert gained_and_kept(broker) == (0, 0)


@pytest.mark.parametrize(("offset", "first"), [(12, 7), (5, 5)])
def test_a_reset_in_a_later_night_does_not_move_its_start(broker: GrowingBroker, offset: int, first: int) -> None:
    events = [sql(BEFORE, "cg_other", EVERYTHING)]
    broker.commit(cg=7)
    broker.night(events)
    broker.grow()
    events.append(sql(after(15), "cg", "n = '12'"))
    broker.night(events)
    broker.grow()
    broker.night([*events, event(after(25), "reset_offset", "cg", queue_id=0, offset=offset)])
    assert gained_and_kept(broker) == (29 - first, 1)


@pytest.mark.parametrize("nights", [1, 2])
def test_an_operator_set_the_offset_before_the_group_first_came(broker: GrowingBroker, nights: int) -> None:
    events = [event(after(3), "reset_offset", "cg", queue_id=0, offset=6), sql(after(8), "cg", EVERYTHING)]
    if nights == 2:
        broker.night([events[0], sql(BEFORE, "cg_other", EVERYTHING)])
        broker.grow()
        events = [events[0], sql(BEFORE, "cg_other", EVERYTHING), sql(after(18), "cg", EVERYTHING)]
    broker.night(events)
    check(broker, list(range(6, 10 * nights)))


def test_groups_that_begin_at_a_time_receive_what_real_consumers_did(run: Run, tmp_path: Path) -> None:
    broker = capture("timestamps")
    for folder in (broker / "night_1", broker / "night_2"):
        given = night(tmp_path, folder / "store", folder / "subscription_events.jsonl", broker / "broker.conf")
        assert run(nightly, *given).code == 0
    assert delivered(tmp_path) == received_live("timestamps")


@pytest.mark.parametrize(
    ("wanted", "first"),
    [(after(340), 340), (FIRST_TIME + 340 * EVERY, 340), (BEFORE, None), (after(10_000), 355)],
    ids=["between two messages", "at a message", "before all messages", "after the start"],
)
def test_a_group_begins_at_the_first_message_since_a_time(
    broker: GrowingBroker, wanted: int, first: int | None
) -> None:
    """The broker has deleted the first messages of the queue, and 350 to 359 are those of the last night."""
    other = night_before_a_deletion(broker)
    started = event(after(355), "register", "cg", type="SQL92", expression=EVERYTHING, consume_from=wanted)
    assert broker.night([other, started]).code == 0
    assert broker.received("cg") == list(range(kept_from(broker) if first is None else first, 360))
    assert broker.passes_audits()
    before = broker.facts()
    assert broker.night([other, started], "--redo-from", after(355)).code == 0
    assert differing(broker.facts(), before) == []


def test_a_group_begins_at_a_time_only_in_queues_that_lost_their_first_message(broker: GrowingBroker) -> None:
    """The broker has no offset of the group, and answers 0 in the other queues. Source: ConsumerManageProcessor."""
    broker.log.write_queues(broker.folder / "store")
    broker.night([event(after(8), "register", "cg", type="SQL92", expression=EVERYTHING, consume_from=after(5))])
    assert broker.received("cg") == list(range(10))


def test_a_group_that_is_refused_at_its_first_start_waits_at_its_time(broker: GrowingBroker) -> None:
    other = night_before_a_deletion(broker)
    refused = event(after(355), "register", "cg", type="SQL92", expression="n >", consume_from=after(345))
    broker.night([other, refused])
    ended = broker.run(lag, "--warehouse", broker.folder / "w", "--group", "cg", "--json")
    assert [json.loads(line)["lag"] for line in ended.out.splitlines()] == [15]
    broker.grow()
    broker.log.write_queues(broker.folder / "store")
    accepted = event(after(365), "register", "cg", type="SQL92", expression=EVERYTHING)
    broker.night([other, refused, accepted])
    assert broker.received("cg") == list(range(345, 370))


def night_before_a_deletion(broker: GrowingBroker) -> str:
    """A night of 350 messages. Ten messages later, the broker deletes its oldest segment.

    Returns the event of the one group that was there.
    """
    other = sql(BEFORE, "cg_other", EVERYTHING)
    broker.log.append(330)
    broker.grow()
    broker.night([other])
    broker.log.append(10)
    broker.log.write(broker.folder / "store", broker.log.segment)
    broker.log.write_queues(broker.folder / "store")
    return other


def kept_from(broker: GrowingBroker) -> int:
    """The queue offset of the first message that the broker still has."""
    return broker.log.min_offsets(broker.log.segment)["T", 0]


def test_a_group_asks_for_the_end_of_a_queue_some_time_after_it_was_registered(broker: GrowingBroker) -> None:
    """A real one asked for it 0.8 s later, and did not get a message that was stored between."""
    other = night_before_a_deletion(broker)
    start = event(after(355), "register", "cg", type="SQL92", expression=EVERYTHING, consume_from="last")
    broker.night([other, start])
    check(broker, [355, 356, 357, 358, 359])
    place = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0", "--json", "--offset")
    answers = {at: json.loads(broker.run(explain, *place, at).out) for at in range(353, 360)}
    assert [at for at, answer in answers.items() if answer["uncertain"] == Reason.BEGAN_AT_END] == [355, 356]
    stats = rows_of(broker.folder / "w", "delivery_stats")
    assert sum(row["uncertain"] for row in stats) == 355 + 2


@pytest.mark.parametrize("consume_from", ["first", "last"])
def test_a_group_may_have_begun_before_the_broker_deleted_messages_in_the_same_night(
    broker: GrowingBroker, consume_from: str
) -> None:
    """It then began at the queue's first message. A group of the next night begins at the first one that is left."""
    other = night_before_a_deletion(broker)
    start = event(after(355), "register", "cg", type="SQL92", expression="n <> '3'", consume_from=consume_from)
    broker.night([other, start])
    kept = kept_from(broker)
    given = range(kept if consume_from == "first" else 355, 360)
    check(broker, list(given))
    place = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0", "--json", "--offset")
    for at, is_uncertain in ((0, True), (3, False), (kept - 1, True), (kept, consume_from == "last"), (359, False)):
        uncertain = json.loads(broker.run(explain, *place, at).out)["uncertain"]
        assert (uncertain == Reason.BEGAN_EARLIER) is is_uncertain, at
    broker.grow()
    broker.log.write(broker.folder / "store", broker.log.segment)
    broker.log.write_queues(broker.folder / "store")
    late = event(after(365), "register", "late", type="SQL92", expression=EVERYTHING, consume_from=consume_from)
    broker.night([other, start, late])
    assert broker.passes_audits()
    counted: defaultdict[str, int] = defaultdict(int)
    for row in rows_of(broker.folder / "w", "delivery_stats"):
        counted[row["consumer_group"]] += row["uncertain"]
    assert counted == {
        "cg_other": 0,
        "cg": 354 + 2 if consume_from == "last" else kept - 1,
        "late": 0 if consume_from == "first" else 2,
    }


def test_what_the_broker_deleted_is_not_pulled_from_a_copy_without_consume_queues(broker: GrowingBroker) -> None:
    """The copy has the log and its configuration: where the log begins shows what is left."""
    broker.log.append(340)
    events = [sql(BEFORE, "cg", EVERYTHING), event(after(5), "unregister", "cg")]
    broker.night(events)
    broker.grow()
    broker.log.write(broker.folder / "store", broker.log.segment)
    events += [sql(after(355), "cg", EVERYTHING), sql(after(355), "new", EVERYTHING)]
    events.append(event(after(355), "register", "at_end", type="SQL92", expression=EVERYTHING, consume_from="last"))
    broker.night(events)
    kept = kept_from(broker)
    check(broker, [*range(5), *range(kept, 360)])
    assert broker.received("new") == list(range(kept, 360))
    assert broker.received("at_end") == list(range(355, 360))
    place = ("--warehouse", broker.folder / "w", "--topic", "T", "--queue", "0", "--offset", 7, "--json", "--group")
    began_earlier = [("new", Reason.BEGAN_EARLIER), ("at_end", Reason.BEGAN_EARLIER)]
    for group, why in (("cg", Reason.DELETED_TONIGHT), *began_earlier):
        assert json.loads(broker.run(explain, *place, group).out)["uncertain"] == why


def test_what_if_counts_what_was_pulled_before_the_offset_was_moved_forward(broker: GrowingBroker) -> None:
    """The group begins at offset 2, and leaves after message 14. Then its offset is 18, and no event says why."""
    other = sql(BEFORE, "cg_other", EVERYTHING)
    broker.commit(cg=2, cg_other=10)
    broker.night([other])
    broker.grow()
    broker.commit(cg=18, cg_other=20)
    broker.night([other, sql(after(12), "cg", "n = '3'"), event(after(15), "unregister", "cg")])
    assert broker.received("cg") == [3]
    assert gained_and_kept(broker) == (12, 1)


PUBLIC = Path(__file__).parents[1] / "cases" / "public" / "new-group-start"
STILL_THERE = "consume_from last, but the first message is still there"


def test_a_new_group_that_gets_all_history(run: Run, tmp_path: Path) -> None:
    """A public question, in which the queues still have their first message."""
    given = night(tmp_path / "w", PUBLIC / "log.jsonl", PUBLIC / "events.jsonl", PUBLIC / "broker.conf")
    began = "new_group on old_topic began 2026-11-21 05:06:40.000 with 20 messages stored before it came"
    assert f"{began}: {STILL_THERE}" in run(nightly, *given).out
    answer = run(explain, "--warehouse", tmp_path / "w", "--message", "h3", "--group", "new_group", "--full").out
    assert f"began       2026-11-21 05:06:40.000 at offset 0 of the queue: {STILL_THERE}" in answer
    assert "msgId -" in answer


@pytest.mark.parametrize(
    ("consume_from", "committed", "resets", "offset", "reason"),
    [
        ("last", None, [], 0, STILL_THERE),
        ("first", None, [], 0, "consume_from first"),
        (str(after(17)), None, [], 0, "consume_from a time, but the first message is still there"),
        ("last", 7, [], 7, "the broker has its committed offset"),
        ("last", None, [3], 3, "an operator set its offset"),
    ],
)
def test_why_a_group_began_where_it_did(
    broker: GrowingBroker, consume_from: str, committed: int | None, resets: list[int], offset: int, reason: str
) -> None:
    other = sql(BEFORE, "cg_other", EVERYTHING)
    broker.commit(cg_other=10, **({} if committed is None else {"cg": committed}))
    broker.night([other])
    broker.grow()
    moved = [event(after(12), "reset_offset", "cg", queue_id=0, offset=to) for to in resets]
    value = int(consume_from) if consume_from.isdigit() else consume_from
    start = event(after(15), "register", "cg", type="SQL92", expression=EVERYTHING, consume_from=value)
    summary = broker.night([other, *moved, start]).out
    given = ("--warehouse", broker.folder / "w", "--group", "cg", "--topic", "T", "--queue", "0", "--offset")
    start_of = {at: json.loads(broker.run(explain, *given, at, "--json").out)["start"] for at in (0, 12, 18)}
    assert list(start_of.values()) == [{"at": after(15), "queue_offset": offset, "reason": reason}] * 3
    assert ("cg on T began" in summary) is (consume_from != "first")
    assert (reason in broker.run(explain, *given, 12).out, reason in broker.run(explain, *given, 18).out) == (
        True,
        False,
    )
