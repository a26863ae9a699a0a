"""A server that answers as a real broker of 5.5.0 did: with the frames in tests/cases/remoting.jsonl."""

from __future__ import annotations

import base64
import json
import socketserver
import struct
import threading
from typing import Any

from schemas.remoting import ReadRequest
from tests.unit.broker import cases

FRAMES = {
    ("no topic" if row["fields"].get("topic") == "None" else row["request"], row["fields"].get("consumerGroup")):
        base64.b64decode(row["frame"])
    for row in cases("remoting") if row["fields"].get("queueId") != "7"
}  # fmt: skip


class Answers(socketserver.ThreadingTCPServer):
    """Answers each request as the broker did. ``sent``: the requests so far. ``changed``: other bodies, by request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sent: list[str] = []
        self.changed: dict[tuple[str, str | None], bytes] = {}
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(socketserver.StreamRequestHandler):
    server: Answers

    def handle(self) -> None:
        while length := self.rfile.read(4):
            frame = self.rfile.read(struct.unpack(">i", length)[0])
            header = json.loads(frame[4:])
            name, group = ReadRequest(header["code"]).name, header["extFields"].get("consumerGroup")
            self.server.sent.append(name)
            key = name, group
            if key not in FRAMES and name == "GET_CONSUMER_CONNECTION_LIST":
                key = name, "cg_none"
            changed = self.server.changed.get(key)
            if name == "GET_TOPIC_STATS_INFO" and (topic := header["extFields"]["topic"]) != "Orders":
                changed = self.server.changed.get((name, topic))
                key = ("no topic", None) if changed is None else key
            answer, body = header_of(FRAMES[key])
            text = json.dumps(answer | {"opaque": header["opaque"]}).encode()
            content = struct.pack(">i", len(text)) + text + (body if changed is None else changed)
            self.wfile.write(struct.pack(">i", len(content)) + content)


def header_of(frame: bytes) -> tuple[dict[str, Any], bytes]:
    length = struct.unpack(">i", frame[:4])[0]
    return json.loads(frame[4 : 4 + length]), frame[4 + length :]
