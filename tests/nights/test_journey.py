"""The life of a message for a group: it waits in a system topic, is delivered, sent back, delivered again, dead.

The capture ``lives`` is the log of a broker of 5.5.0 whose consumers fail on some messages, with delayed messages,
timer messages and half messages. A message's property ``fail`` says how often its consumers failed on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from answers import warehouse as door
from jobs import explain, nightly
from schemas.delta.warehouse import Warehouse
from tests.captures import capture, rows
from tests.nights.commands import Run

PUBLIC = Path(__file__).parents[1] / "cases" / "public"
T0 = 1_795_237_510_000
SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


def message(
    seconds: float, topic: str, queue_id: int = 0, queue_offset: int = 0, /, **properties: str
) -> dict[str, Any]:
    """A message of a log, with the property UNIQ_KEY ``u`` unless another one is given (empty: none)."""
    given = {"UNIQ_KEY": "u", **properties}
    return {
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "store_timestamp": T0 + int(1000 * seconds),
        "properties": {name: value for name, value in given.items() if value},
    }


class Asked:
    """A night on a message log of a broker, and what explain says after it."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run, self._folder = run, folder

    def night(self, messages: list[dict[str, Any]], *subscriptions: tuple[str, str, str], conf: str = "") -> None:
        """``subscriptions``: groups, topics and SQL92 expressions or tags."""
        events = [
            {"at": T0 - 1000, "op": "register", "group": group, "topic": topic, "expression": expression,
             "type": "SQL92" if "=" in expression or "IS" in expression else "TAG", "sub_version": T0 - 1000}
            for group, topic, expression in subscriptions
        ]  # fmt: skip
        lines = [each | {"commitlog_offset": 300 * i} for i, each in enumerate(messages)]
        for name, documents in (("log.jsonl", lines), ("events.jsonl", events)):
            (self._folder / name).write_text("\n".join(map(json.dumps, documents)), "utf-8")
        (self._folder / "broker.conf").write_text(f"brokerName=b\nenablePropertyFilter=true\n{conf}")
        self.night_on(self._folder)

    def night_on(self, given: Path) -> None:
        ended = self._run(
            nightly, "--store", given / "log.jsonl", "--subscriptions", given / "events.jsonl",
            "--broker-config", given / "broker.conf", "--warehouse", self._folder / "w",
        )  # fmt: skip
        assert ended.code == 0, ended

    def text(self, *arguments: object) -> str:
        ended = self._run(explain, "--warehouse", self._folder / "w", *arguments)
        assert ended.code == 0, ended
        return ended.out

    def answer(self, *arguments: object) -> dict[str, Any]:
        (line,) = self.text(*arguments, "--json").splitlines()
        result: dict[str, Any] = json.loads(line)
        return result


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of the capture ``lives``."""
    broker, warehouse = capture("lives"), tmp_path_factory.mktemp("lives") / "w"
    given = ("--store", broker / "store", "--subscriptions", broker / "subscription_events.jsonl",
             "--broker-config", broker / "broker.conf", "--warehouse", warehouse)  # fmt: skip
    nightly.main(list(map(str, given)))
    return warehouse


@pytest.fixture
def asked(run: Run, tmp_path: Path) -> Asked:
    return Asked(run, tmp_path)


def steps(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """The kind or outcome of each step, and the topic of its copy."""
    return [(step["outcome"] or step["kind"], step["topic"]) for step in answer["journey"]]


RETRY = {"REAL_TOPIC": "%RETRY%cg", "REAL_QID": "0", "RETRY_TOPIC": "T"}
TWICE_AND_DEAD = [
    message(0, "T", TAGS="a"),
    message(1, SCHEDULE, 2, DELAY="3", TAGS="a", **RETRY),
    message(11, "%RETRY%cg", TAGS="a", DELAY="3", **RETRY),
    message(12, SCHEDULE, 3, DELAY="4", TAGS="a", **RETRY),
    message(42, "%RETRY%cg", 0, 1, TAGS="a", DELAY="4", **RETRY),
    message(43, "%DLQ%cg", TAGS="a", RETRY_TOPIC="T"),
]
CG = [("cg", "T", "a"), ("cg", "%RETRY%cg", "*")]


def test_a_dead_message_of_a_public_question(asked: Asked) -> None:
    asked.night_on(PUBLIC / "dead-message-status")
    lines = asked.text("--message", "dead-1", "--group", "cg").splitlines()
    assert lines[0] == "dead-1  T 0/0 → cg: delivered, sent back 1 time, dead since 2026-11-21 05:05:41.000"
    assert [line.strip() for line in lines[2:]] == [
        "journey     delivered 2026-11-21 05:05:10.000 (T 0/0)",
        "sent back 2026-11-21 05:05:11.000, level 3, due 2026-11-21 05:05:21.000 (SCHEDULE_TOPIC_XXXX 2/0)",
        "delivered again 2026-11-21 05:05:21.000 (%RETRY%cg 0/0)",
        "dead since 2026-11-21 05:05:41.000 (%DLQ%cg 0/0)",
    ]


@pytest.mark.parametrize("given", [2, 3, 4, 5, 6])
def test_the_whole_way_from_any_copy(asked: Asked, given: int) -> None:
    """``given``: how many of the copies the log has. The way is the same for each copy that explain is asked for."""
    asked.night(TWICE_AND_DEAD[:given], *CG)
    back, again = ("SENT_BACK", SCHEDULE), ("DELIVERED", "%RETRY%cg")
    expected = [("DELIVERED", "T"), back, again, back, again, ("DEAD", "%DLQ%cg")][:given]
    for copy in TWICE_AND_DEAD[:given]:
        place = ("--topic", copy["topic"], "--queue", copy["queue_id"], "--offset", copy["queue_offset"])
        assert steps(asked.answer(*place, "--group", "cg")) == expected
    header = asked.text("--message", "u", "--group", "cg").splitlines()[0]
    last = ["comes again at 2026-11-21 05:05:21.000", "delivered again", "comes again at 2026-11-21 05:05:52.000",
            "delivered again", "dead since 2026-11-21 05:05:53.000"][given - 2]  # fmt: skip
    times = "1 time" if given < 4 else "2 times"
    assert header == f"u  T 0/0 → cg: delivered, sent back {times}, {last}"


def test_the_copies_of_another_group_are_not_on_the_way(asked: Asked) -> None:
    asked.night(TWICE_AND_DEAD, *CG, ("cg_other", "T", "*"))
    assert steps(asked.answer("--message", "u", "--group", "cg_other")) == [("DELIVERED", "T")]
    lines = asked.text("--message", "u").splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines[2:4]] == [
        "the tag is subscribed; sent back 2 times, dead since 2026-11-21 05:05:53.000",
        "the subscription takes everything",
    ]
    answer = asked.answer("--topic", "%RETRY%cg", "--queue", "0", "--offset", "0", "--group", "cg_other")
    assert (answer["outcome"], steps(answer)[0]) == ("NOT_SUBSCRIBED", ("DELIVERED", "T"))


def test_a_message_that_was_sent_twice_has_two_lives(asked: Asked) -> None:
    """Both have one unique key; ORIGIN_MESSAGE_ID names the one that was sent back."""
    sent = [message(0, "T", TAGS="a"), message(0.1, "T", 0, 1, TAGS="a")]
    ids = [f"7F00000100002A9F{offset:016X}" for offset in (0, 300)]
    back = message(11, "%RETRY%cg", TAGS="a", RETRY_TOPIC="T", ORIGIN_MESSAGE_ID=ids[1])
    asked.night([each | {"msg_id": id_} for each, id_ in zip(sent, ids, strict=True)] + [back], *CG)
    assert steps(asked.answer("--message", ids[0], "--group", "cg")) == [("DELIVERED", "T")]
    again = [("DELIVERED", "T"), ("DELIVERED", "%RETRY%cg")]
    assert steps(asked.answer("--message", ids[1], "--group", "cg")) == again
    place = ("--topic", "%RETRY%cg", "--queue", 0, "--offset", 0)
    assert steps(asked.answer(*place, "--group", "cg")) == again


def test_a_message_without_a_unique_key(asked: Asked) -> None:
    msg_id = f"7F00000100002A9F{0:016X}"
    sent = message(0, "T", TAGS="a", UNIQ_KEY="") | {"msg_id": msg_id}
    back = message(11, "%RETRY%cg", TAGS="a", UNIQ_KEY="", ORIGIN_MESSAGE_ID=msg_id)
    asked.night([sent, back], *CG)
    again = [("DELIVERED", "T"), ("DELIVERED", "%RETRY%cg")]
    assert steps(asked.answer("--message", msg_id, "--group", "cg")) == again


def test_only_the_copy_is_left(asked: Asked) -> None:
    """The message itself was deleted."""
    asked.night(TWICE_AND_DEAD[1:3], *CG)
    answer = asked.answer("--message", "u", "--group", "cg")
    assert answer["outcome"] == "DELIVERED"
    assert steps(answer) == [("SENT_BACK", SCHEDULE), ("DELIVERED", "%RETRY%cg")]


def test_it_was_sent_back_though_the_subscriptions_do_not_say_so(asked: Asked) -> None:
    asked.night(TWICE_AND_DEAD[:3], ("cg", "T", "b"), ("cg", "%RETRY%cg", "*"))
    answer = asked.answer("--message", "u", "--group", "cg")
    assert answer["outcome"] == "STOPPED_BY_TAGS_CODE"
    assert answer["uncertain"].endswith("the group sent it back, so it had received it")
    assert steps(answer)[-1] == ("DELIVERED", "%RETRY%cg")


def test_a_waiting_message_of_a_public_question(asked: Asked) -> None:
    asked.night_on(PUBLIC / "waiting-delay-message")
    assert asked.text("--message", "wait-1", "--group", "cg").splitlines() == [
        "wait-1  SCHEDULE_TOPIC_XXXX 17/7 → cg: waits in a system topic",
        "  because     a delayed message (level 18) for my_topic, due 2026-11-21 07:05:10.000",
        "  then        would be delivered: the tag is subscribed",
    ]
    (every,) = asked.text("--message", "wait-1").splitlines()[2:]
    assert every.endswith("due 2026-11-21 07:05:10.000; then it would be delivered: the tag is subscribed")


LATER = message(30, "T", 0, 9, UNIQ_KEY="later")


@pytest.mark.parametrize(
    ("waiting", "conf", "due", "is_overdue"),
    [
        (message(0, SCHEDULE, 3, REAL_TOPIC="T", REAL_QID="1", DELAY="4", n="1"), "", 30, False),
        (message(0, SCHEDULE, 2, REAL_TOPIC="T", REAL_QID="1", DELAY="3", n="1"), "", 10, True),
        (message(0, SCHEDULE, 1, REAL_TOPIC="T", DELAY="9", n="1"), "messageDelayLevel=1s 2m\n", 120, False),
        (message(0, TIMER, REAL_TOPIC="T", REAL_QID="1", TIMER_OUT_MS=str(T0 + 60_000), n="1"), "", 61, False),
        (message(0, TIMER, REAL_TOPIC="T", REAL_QID="1", TIMER_OUT_MS=str(T0 + 5_000), n="1"), "", 6, True),
        (message(0, HALF, REAL_TOPIC="T", REAL_QID="1", TRAN_MSG="true", n="1"), "", None, False),
    ],
)
def test_what_waits_says_for_which_topic_and_until_when(
    asked: Asked, waiting: dict[str, Any], conf: str, due: int | None, is_overdue: bool
) -> None:
    asked.night([waiting, LATER], ("cg_yes", "T", "n = '1'"), ("cg_no", "T", "n = '2'"), ("cg", "U", "*"), conf=conf)
    answers = {group: asked.answer("--message", "u", "--group", group) for group in ("cg_yes", "cg_no", "cg")}
    assert {group: answer["outcome"] for group, answer in answers.items()} == {
        "cg_yes": "WAITING", "cg_no": "WAITING", "cg": "NOT_SUBSCRIBED",
    }  # fmt: skip
    assert answers["cg_yes"]["would_be"]["outcome"] == "DELIVERED"
    assert answers["cg_no"]["would_be"]["outcome"] == "STOPPED_BY_EXPRESSION"
    for answer in answers.values():
        assert " for T" in answer["reason"]
        assert ("overdue" in answer["reason"]) is is_overdue
    (step,) = answers["cg_yes"]["journey"]
    assert (step["kind"], step["due"]) == ("WAITS", None if due is None else T0 + 1000 * due)


@pytest.mark.parametrize("stored", [0, 2])
def test_each_of_two_delayed_messages_with_one_key_becomes_its_own(asked: Asked, stored: int) -> None:
    """A client that gets no answer in time sends the same message again."""
    sent = [message(i, SCHEDULE, 3, i, REAL_TOPIC="T", REAL_QID="1", DELAY="4") for i in (0, 1)]
    asked.night([*sent, *(message(30 + i, "T", 1, i, DELAY="4") for i in range(stored))], ("cg", "T", "*"))
    answers = [asked.answer("--topic", SCHEDULE, "--queue", 3, "--offset", i, "--group", "cg") for i in (0, 1)]
    assert [answer["outcome"] for answer in answers] == ["DELIVERED"] * stored + ["WAITING"] * (2 - stored)
    assert [f"T 1/{i}" in answer["reason"] for i, answer in enumerate(answers)] == [i < stored for i in (0, 1)]


def test_a_half_message_that_was_rolled_back_and_one_that_was_asked_for_again(asked: Asked) -> None:
    real = {"REAL_TOPIC": "T", "REAL_QID": "1", "TRAN_MSG": "true"}
    asked.night(
        [
            message(0, HALF, 0, 0, UNIQ_KEY="back", **real),
            message(1, HALF, 0, 1, UNIQ_KEY="open", **real),
            message(2, OP, 0, 0, UNIQ_KEY="", TAGS="d") | {"body": "302c"},
            message(60, HALF, 0, 2, UNIQ_KEY="open", TRANSACTION_CHECK_TIMES="1", **real),
            message(61, HALF, 0, 3, UNIQ_KEY="often", **real),
            message(62, "TRANS_CHECK_MAX_TIME_TOPIC", 0, 0, UNIQ_KEY="often", **real),
        ],
        ("cg", "T", "*"),
    )
    answers = {key: asked.answer("--message", key, "--group", "cg") for key in ("back", "open", "often")}
    assert {key: answer["outcome"] for key, answer in answers.items()} == {
        "back": "NEVER_STORED", "open": "WAITING", "often": "NEVER_STORED",
    }  # fmt: skip
    assert "rolled back" in answers["back"]["reason"]
    assert "neither committed nor rolled back" in answers["open"]["reason"]
    assert [step["kind"] for step in answers["open"]["journey"]] == ["WAITS", "WAITS"]


def test_a_real_broker_stores_each_message_that_waited_as_we_say(replayed: Callable[[str], Warehouse]) -> None:
    """Of each message in a system topic: whether it was stored in its topic, by the capture, and where."""
    copies = [row for row in rows("small", "messages") if not row.get("blank")]
    offset_of = {row["physicalOffset"]: row for row in copies}
    mqsieve = door.open(replayed("small").location)
    waiting = [row for row in copies if row["topic"] in (SCHEDULE, HALF)]
    outcomes: dict[str, int] = {}
    for row in waiting:
        real = row["properties"]["REAL_TOPIC"]
        group = (
            real.removeprefix("%RETRY%") if real.startswith("%") else f"cg_all_{real.removesuffix('Events').lower()}"
        )
        group = "cg_sql_temperature" if group == "cg_all_devicetelemetry" else group
        key = row["properties"].get("UNIQ_KEY")
        if group not in mqsieve.facts.groups or key is None:
            continue
        (explanation,) = mqsieve.why_at(row["topic"], row["queueId"], row["queueOffset"], group)
        stored = [
            each
            for each in offset_of.values()
            if each["topic"] == real and (each.get("properties") or {}).get("UNIQ_KEY") == key
            and each["physicalOffset"] > row["physicalOffset"]
        ]  # fmt: skip
        assert (str(explanation.outcome) in ("WAITING", "NEVER_STORED")) is not bool(stored), (
            explanation.decision.reason
        )
        if stored:
            assert any(
                f"{each['topic']} {each['queueId']}/{each['queueOffset']}" in explanation.decision.reason
                for each in stored
            )
        outcomes[str(explanation.outcome)] = outcomes.get(str(explanation.outcome), 0) + 1
    assert outcomes["DELIVERED"] > 30


def test_deliveries_of_a_real_life_are_what_its_consumers_received(lives: Path) -> None:
    """Each call of a listener is a delivery on the message's way; an orderly consumer tries again in its memory."""
    mqsieve = door.open(str(lives))
    received: dict[tuple[str, str], list[tuple[str, int, int]]] = {}
    for row in rows("lives", "live"):
        place = row["topic"], row["queueId"], row["queueOffset"]
        if row["group"].startswith("cg_") and place not in received.get((row["keys"], row["group"]), []):
            received.setdefault((row["keys"], row["group"]), []).append(place)
    for (key, group), places in received.items():
        (explanation,) = mqsieve.why(key, group)
        delivered = [
            (step.topic, step.queue_id, step.queue_offset)
            for step in explanation.journey
            if step.outcome == "DELIVERED"
        ]
        assert delivered == places, (key, group)
    assert len(received) == 18


def said(run: Run, warehouse: Path, key: str, group: str) -> list[str]:
    """The lines of explain, without the date."""
    ended = run(explain, "--warehouse", warehouse, "--message", key, "--group", group)
    return [line.strip().replace("2026-11-27 ", "") for line in ended.out.splitlines()]


def test_a_message_that_fails_dies_or_still_comes_again(run: Run, lives: Path) -> None:
    assert said(run, lives, "ord-dies", "cg_fails") == [
        "ord-dies  Orders 0/1 → cg_fails: delivered, sent back 2 times, dead since 11:38:32.786",
        "because     the subscription takes everything",
        "journey     delivered 11:38:30.542 (Orders 0/1)",
        "sent back 11:38:30.557, level 1, due 11:38:31.557 (SCHEDULE_TOPIC_XXXX 0/1)",
        "delivered again 11:38:31.597 (%RETRY%cg_fails 0/1)",
        "sent back 11:38:31.619, level 1, due 11:38:32.619 (SCHEDULE_TOPIC_XXXX 0/3)",
        "delivered again 11:38:32.729 (%RETRY%cg_fails 0/3)",
        "dead since 11:38:32.786 (%DLQ%cg_fails 0/0)",
    ]
    # An orderly consumer gives a message up at once.
    in_order = said(run, lives, "ord-dies-in-order", "cg_orderly")
    assert in_order[0] == "ord-dies-in-order  Orders 1/1 → cg_orderly: delivered, dead since 11:38:31.170"
    waits = said(run, lives, "ord-waits", "cg_fails")
    assert waits[0] == "ord-waits  Orders 0/5 → cg_fails: delivered, sent back 1 time, comes again at 11:40:10.563"


@pytest.mark.parametrize(
    ("key", "outcome", "reason", "kinds"),
    [
        ("ord-delayed", "DELIVERED", "the tag is subscribed", ["WAITS", "FILTERED"]),
        ("ord-delayed-long", "WAITING", "a delayed message (level 18) for Orders, due 13:38:30.576", ["WAITS"]),
        ("ord-timer", "DELIVERED", "the tag is subscribed", ["WAITS", "FILTERED"]),
        ("ord-timer-long", "WAITING", "a timer message for Orders, due 12:38:31.000", ["WAITS"]),
        ("ord-timer-recalled", "NEVER_STORED",
         "a timer message for Orders, due 11:38:39.000: recalled 11:38:31.641, so it is never delivered",
         ["WAITS", "RECALLED"]),
        ("ord-tx-commit", "DELIVERED", "the tag is subscribed", ["WAITS", "FILTERED"]),
        ("ord-tx-late", "DELIVERED", "the tag is subscribed", ["WAITS", "WAITS", "FILTERED"]),
        ("ord-tx-rollback", "NEVER_STORED",
         "a half message of a transaction for Orders: rolled back, so it is never delivered", ["WAITS"] * 3),
        ("ord-tx-unknown", "NEVER_STORED", "a half message of a transaction for Orders: given up, because no producer "
         "ended it, however often the broker asked", ["WAITS"] * 3),
    ],
)  # fmt: skip
def test_a_real_broker_waits_with_messages(lives: Path, key: str, outcome: str, reason: str, kinds: list[str]) -> None:
    """Of ord-tx-rollback, the broker had asked its producer twice before it wrote down that it was rolled back."""
    (explanation,) = door.open(str(lives)).why(key, "cg_orderly")
    assert (str(explanation.outcome), explanation.decision.reason.replace("2026-11-27 ", "")) == (outcome, reason)
    assert [str(step.kind) for step in explanation.journey] == kinds


def test_without_bodies_it_is_not_known_what_was_rolled_back(run: Run, asked: Asked, tmp_path: Path) -> None:
    real = {"REAL_TOPIC": "T", "REAL_QID": "1", "TRAN_MSG": "true"}
    ended = message(2, OP, 0, 0, UNIQ_KEY="", TAGS="d") | {"body": "302c"}
    asked.night([message(0, HALF, 0, 0, UNIQ_KEY="back", **real), ended], ("cg", "T", "*"))
    assert "rolled back, so it is never delivered" in asked.answer("--message", "back", "--group", "cg")["reason"]
    given = ("--store", tmp_path / "log.jsonl", "--subscriptions", tmp_path / "events.jsonl", "--bodies", "none")
    assert run(nightly, *given, "--warehouse", tmp_path / "without").code == 0
    out = run(explain, "--warehouse", tmp_path / "without", "--message", "back", "--group", "cg").out
    assert "whether it was rolled back is not known without the bodies of RMQ_SYS_TRANS_OP_HALF_TOPIC" in out


def test_a_message_that_waits_and_that_nobody_subscribes_to(asked: Asked) -> None:
    asked.night([message(0, SCHEDULE, 17, REAL_TOPIC="T", REAL_QID="1", DELAY="18"), LATER], ("cg", "U", "*"))
    said = "a delayed message (level 18) for T, due 2026-11-21 07:05:10.000; no group ever subscribed to the topic"
    assert said in asked.text("--message", "u")


def test_a_group_that_sent_a_message_back_and_whose_retry_topic_is_in_no_event(asked: Asked) -> None:
    asked.night(TWICE_AND_DEAD[:2], ("cg", "T", "a"))
    copy = ("--topic", SCHEDULE, "--queue", 2, "--offset", 0, "--group", "cg")
    answer = asked.answer(*copy)
    assert (answer["outcome"], steps(answer)) == ("WAITING", [("DELIVERED", "T"), ("SENT_BACK", SCHEDULE)])
    assert "add one with the tag *" in answer["reason"]
