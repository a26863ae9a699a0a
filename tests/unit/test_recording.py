"""record, answered with what a real broker of 5.5.0 answered."""

from __future__ import annotations

import json
import socketserver
import struct
import threading
from collections.abc import Iterator
from itertools import accumulate, chain, cycle, islice
from pathlib import Path
from typing import Any

import pytest

from filtering.subscription_data import ConsumerGroupInfo, Subscription, new_subscription
from filtering.subscriptions.watch import Look, WatchedClient, WatchedGroup, changes
from schemas.errors import UsageError
from schemas.live_broker import LiveBroker
from schemas.recording import BrokerRecorder, Recorder, locked, recorded_brokers
from schemas.remoting import Connection, Credentials, ReadRequest, RemotingError, Request, Response, decode, encode
from tests.remoting_server import FRAMES, Answers

SENT = {
    "GET_BROKER_CONFIG", "GET_BROKER_RUNTIME_INFO", "GET_ALL_CONSUMER_OFFSET", "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
    "GET_CONSUMER_CONNECTION_LIST", "GET_CONSUMER_RUNNING_INFO", "QUERY_CONSUME_QUEUE",
}  # fmt: skip


@pytest.fixture
def broker() -> Iterator[Answers]:
    with Answers() as answers:
        yield answers
        answers.shutdown()


def events(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "broker-a" / "subscription_events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def look(recorder: Recorder) -> list[tuple[str, int | str]]:
    try:
        return list(recorder.look())
    finally:
        recorder.close()


def test_a_request_is_the_frame_that_a_broker_reads() -> None:
    frame = encode(Request(ReadRequest.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "cg"}), 7)
    length, header = struct.unpack(">ii", frame[:8])
    assert (length, header) == (len(frame) - 4, len(frame) - 8)
    sent = json.loads(frame[8:])
    assert (sent["code"], sent["opaque"], sent["flag"], sent["extFields"]) == (203, 7, 0, {"consumerGroup": "cg"})


def test_the_signature_is_that_of_rocketmqs_client() -> None:
    """Asked of AclClientRPCHook of rocketmq-client 5.5.0."""
    signed = Credentials("RocketMQ", "12345678").sign({"consumerGroup": "cg_订单", "Zeta": "z"})
    assert signed["Signature"] == "vBge9hLDxKmawP97ZgDMBLM7c9E="


def test_answers_of_a_broker() -> None:
    stranger = Response(1, 16, "refused", b"")
    with pytest.raises(RemotingError, match="16: refused; give the --access-key and --secret-key-file"):
        stranger.json()
    offline = decode(FRAMES["GET_CONSUMER_CONNECTION_LIST", "cg_none"])
    assert offline is not None
    assert (offline.code, offline.remark) == (206, "the consumer group[cg_none] not online")
    with pytest.raises(RemotingError, match="refused with code 206: the consumer group"):
        offline.json()
    running = decode(FRAMES["GET_CONSUMER_RUNNING_INFO", "cg_sql"])
    assert running is not None
    queues = running.json()["mqTable"]  # its keys are objects
    assert json.loads(sorted(queues)[0]) == {"brokerName": "broker-a", "queueId": 0, "topic": "%RETRY%cg_sql"}
    assert len(queues) == 3


@pytest.mark.parametrize("text", ["", "{", '{"a":}', '{{"a":1}}', "[1 2]", '{"a":1,,}', "<html>", "[" * 100_000])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(RemotingError, match=r"is not JSON|not a JSON object"):
        Response(1, 0, "", text.encode()).json()


@pytest.mark.parametrize("frame", [b"", b"\x01\0\0\2{}", b"\0\0\0\2{}", b"\0\1\0\0{}", b"\0\0\0\4null"])
def test_what_is_no_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(RemotingError, match="no frame of RocketMQ's remoting protocol"):
        decode(frame)


def test_a_name_server_that_is_given_as_a_broker_is_said() -> None:
    refused = Response(1, 3, " request type 26 not supported", b"")
    with pytest.raises(RemotingError, match="not supported; is a name server given as a broker"):
        refused.text()


def test_a_look_writes_down_what_a_night_needs(broker: Answers, tmp_path: Path) -> None:
    assert look(Recorder(tmp_path, [broker.address], [], interval=10)) == [("broker-a", 1)]
    (event,) = events(tmp_path)
    sql = {"topic": "Orders", "type": "SQL92", "expression": "price > 2", "sub_version": 1795760034310}
    retry = {"topic": "%RETRY%cg_sql", "type": "TAG", "expression": "*", "sub_version": 1795760034461}
    assert sorted(event.pop("subscriptions"), key=lambda each: each["topic"]) == [retry, sql]
    # The born time of the filter, by the broker's clock. Nobody saw what the group did before.
    assert event == {
        "at": 1795760034091, "op": "heartbeat", "group": "cg_sql", "client_id": "127.0.0.1@c1", "consume_from": "first",
        "since": 0,
    }  # fmt: skip
    offsets = [json.loads(line) for line in (tmp_path / "broker-a" / "offsets.jsonl").read_text().splitlines()]
    assert {(row["group"], row["topic"]): row["offsets"] for row in offsets}["cg_sql", "Orders"] == {"0": 3, "1": 3}
    recorded = recorded_brokers(tmp_path)["broker-a"]
    assert str(recorded.version) == "5.5.0"
    config = recorded.config.read_text()
    assert "\nenableCalcFilterBitMap=true\n" in config
    assert "Password" not in config
    assert "authenticationUser" not in config
    assert set(broker.sent) == SENT


def test_a_later_recorder_goes_on(broker: Answers, tmp_path: Path) -> None:
    look(Recorder(tmp_path, [broker.address], [], interval=10))
    written = {file.name: file.read_text() for file in (tmp_path / "broker-a").glob("*.jsonl")}
    with open(tmp_path / "broker-a" / "subscription_events.jsonl", "a") as file:
        file.write('{"at": 1795')  # it died while it wrote
    broker.sent.clear()
    assert look(Recorder(tmp_path, [broker.address], [], interval=10)) == [("broker-a", 0)]
    assert {file.name: file.read_text() for file in (tmp_path / "broker-a").glob("*.jsonl")} == written
    assert "GET_CONSUMER_RUNNING_INFO" not in broker.sent
    broker.changed["GET_CONSUMER_CONNECTION_LIST", "cg_sql"] = b'{"connectionSet":[],"subscriptionTable":{}}'
    assert look(Recorder(tmp_path, [broker.address], [], interval=0.000001)) == [("broker-a", 1)]
    gap, left = events(tmp_path)[1:]
    assert (gap["op"], gap["since"] <= left["since"]) == ("not_watched", True)
    assert (left["op"], left["client_id"]) == ("unregister", "127.0.0.1@c1")
    assert left["offsets"]["Orders"] == {"0": 3, "1": 3}


@pytest.mark.parametrize(("answered_in", "pause"), [([3], 1.0), ([40], 4.0), ([300, 40, 70], 4.0), ([300], 10.0)])
def test_a_broker_that_answers_soon_is_looked_at_more_often(
    broker: Answers, tmp_path: Path, answered_in: list[int], pause: float
) -> None:
    """The shortest of ten answers counts."""
    times = accumulate(chain.from_iterable((1, each) for each in islice(cycle(answered_in), 10)))
    recorder = BrokerRecorder(tmp_path, LiveBroker(Connection(broker.address)), 10, times.__next__)
    for _ in range(10):
        assert recorder.pause == 1.0
        recorder.look()
    recorder.broker.connection.close()
    assert recorder.pause == pause


def test_offsets_are_written_once_in_an_interval(broker: Answers, tmp_path: Path) -> None:
    """Those that moved in between are not lost."""

    def written(at: int, offset: int) -> list[tuple[int, int]]:
        body = {"offsetTable": {"Orders@cg": {"0": offset}}}
        broker.changed["GET_ALL_CONSUMER_OFFSET", None] = json.dumps(body).encode()
        recorder = BrokerRecorder(tmp_path, LiveBroker(Connection(broker.address)), 10, lambda: at)
        recorder.look()
        recorder.broker.connection.close()
        rows = [json.loads(line) for line in (tmp_path / "offsets.jsonl").read_text().splitlines()]
        return [(row["at"], row["offsets"]["0"]) for row in rows]

    assert written(20_000, 3) == [(20_000, 3)]
    assert written(21_000, 4) == [(20_000, 3)]
    assert written(29_999, 4) == [(20_000, 3)]
    assert written(30_000, 4) == [(20_000, 3), (30_000, 4)]


def test_a_file_of_offsets_that_was_taken_away_begins_again(broker: Answers, tmp_path: Path) -> None:
    recorder, file = Recorder(tmp_path, [broker.address], [], interval=10), tmp_path / "broker-a" / "offsets.jsonl"
    look(recorder)
    written = file.read_text()
    file.unlink()
    look(recorder)
    assert (written != "", file.read_text()) == (True, "")


def test_a_client_with_another_answer_has_the_subscriptions_of_its_group(broker: Answers, tmp_path: Path) -> None:
    broker.changed["GET_CONSUMER_RUNNING_INFO", "cg_sql"] = b'{"properties":{}}'
    assert look(Recorder(tmp_path, [broker.address], [], interval=10)) == [("broker-a", 1)]
    assert {each["topic"] for each in events(tmp_path)[0]["subscriptions"]} == {"Orders", "%RETRY%cg_sql"}
    broker.changed["GET_CONSUMER_CONNECTION_LIST", "cg_sql"] = b'{"connectionSet":[{}]}'
    ((_, reason),) = look(Recorder(tmp_path, [broker.address], [], interval=10))
    assert reason == "the answer is not of the form that RocketMQ writes"


def test_events_stay_without_a_state(broker: Answers, tmp_path: Path) -> None:
    look(Recorder(tmp_path, [broker.address], [], interval=10))
    (tmp_path / "broker-a" / "state.json").write_text("{")
    with pytest.raises(UsageError, match=r"state.json is damaged: remove it"):
        look(Recorder(tmp_path, [broker.address], [], interval=10))
    (tmp_path / "broker-a" / "state.json").unlink()
    look(Recorder(tmp_path, [broker.address], [], interval=10))
    assert len(events(tmp_path)) == 2


def test_a_name_server_lists_brokers_and_failures_are_named(broker: Answers, tmp_path: Path) -> None:
    """The listed broker had another port: nobody answers there any more."""
    ((name, result),) = look(Recorder(tmp_path, [], ["127.0.0.1:1", broker.address], interval=10))
    assert (name, result) == ("broker-a", "Connection refused")
    (failed,) = look(Recorder(tmp_path, ["127.0.0.1:1"], [], interval=10))
    assert failed == ("127.0.0.1:1", "Connection refused")


def test_another_protocol_is_named() -> None:
    class Web(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        connection = Connection(f"127.0.0.1:{server.server_address[1]}")
        with pytest.raises((RemotingError, ConnectionError)):
            connection.ask(ReadRequest.GET_BROKER_CONFIG)


def test_one_recorder_writes_to_a_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(UsageError, match="another record writes to"), locked(tmp_path):
        pass
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match=f"cannot write to {file} .file exists.: give a folder"), locked(file):
        pass


@pytest.mark.parametrize(("version", "born", "at"), [(500, {"T": 700}, 700), (500, {}, 500), (300, {}, 1_001)])
def test_when_a_client_changed_its_filter(version: int, born: dict[str, int], at: int) -> None:
    """When the broker registered it; else when the client says; else at the later of two looks, 400 and 1,001 ms."""

    def group(subscription: Subscription, born: dict[str, int]) -> WatchedGroup:
        client = WatchedClient("10.0.0.1:51814", subscriptions={"T": subscription})
        return WatchedGroup({"c1": client}, {"T": subscription}, born=born)

    before = group(new_subscription("T", "a", "TAG", 100), {})
    now = group(new_subscription("T", "n = 1", "SQL92", version), born)
    (event,) = changes("cg", before, now, Look(1_000, 1_001, 400), {}, ConsumerGroupInfo())
    assert (event.at, event.since, event.subscriptions[0]["expression"]) == (at, 400, "n = 1")


@pytest.mark.parametrize(("before", "left"), [(400, 649), (None, 650)])
def test_a_client_that_was_replaced_left_before_the_new_one_began(before: int | None, left: int) -> None:
    """It is not known when: at the latest then, and after the last look."""
    subscriptions = {"T": new_subscription("T", "a", "TAG", 100)}
    old, new = (WatchedGroup({name: WatchedClient(name, at, subscriptions)}, subscriptions) for name, at in CLIENTS)
    events = changes("cg", old, new, Look(1_000, 1_001, before), {}, ConsumerGroupInfo())
    assert [(event.operation.value, event.client_id, event.at) for event in events] == [
        ("unregister", "c1", left),
        ("heartbeat", "c2", 650),
        ("heartbeat", "c2", 1_001),
    ]


CLIENTS = [("c1", 100), ("c2", 650)]
"""Client ids, and when the clients started (ms)."""
