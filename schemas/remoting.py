"""RocketMQ's remoting protocol, as far as it reads: frames, signatures, and requests to a broker or a name server.

A frame is its length in 4 bytes, a header with its length, and a body. The highest byte of the header's length says how
the header is written: 0 is JSON. ReadRequest lists all requests that this module sends. None of them changes anything
in a broker. Sources: RemotingCommand, RequestCode, AclClientRPCHook, AdminBrokerProcessor, MQClientAPIImpl.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from filtering.frozen import frozen

SUCCESS = 0
TOPIC_NOT_EXIST = 17
"""The code of a response about a topic that the broker does not have (ResponseCode)."""
NO_PERMISSION = 16
"""The code of a response to a user who may not ask (ResponseCode); brokers of 4.x name an AclException."""
NOT_SUPPORTED = 3
"""The code of a response to a request that a server does not know (ResponseCode): a broker was taken for a name
server, or a name server for a broker."""
CONSUMER_NOT_ONLINE = 206
"""The code of a response about a group without clients (ResponseCode)."""
LARGEST_FRAME = 256 << 20
"""The greatest length of a frame in bytes."""
TIMEOUT = 15.0
"""Seconds. A broker waits up to 10 s for a client's answer (Broker2Client.callClient)."""
AT_ONCE = 16
"""Requests that are sent before the first of them is answered. A broker has 16 threads for such requests."""
_RESPONSE = 1
"""The bit of a header's ``flag`` in a response."""
_PART = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+)')


class ReadRequest(IntEnum):
    """The codes of all requests that are sent (RequestCode). A broker answers each from what it has in memory or in
    files; GET_CONSUMER_RUNNING_INFO it passes on to a client, which answers so."""

    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    GET_ALL_CONSUMER_OFFSET = 43
    GET_BROKER_CLUSTER_INFO = 106
    """To a name server."""
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CONSUME_QUEUE = 321


class RemotingError(Exception):
    """A broker refused a request, or what came is no frame of the protocol."""


class Request(NamedTuple):
    """A request with its fields (extFields)."""

    code: ReadRequest
    fields: Mapping[str, str] = {}


@frozen
class Response:
    """What a broker answered. ``code``: SUCCESS, or why not, with a ``remark``. ``opaque``: the request's number."""

    opaque: int
    code: int
    remark: str
    body: bytes

    def json(self) -> dict[str, Any]:
        """The JSON object in the body. Raises RemotingError if the request failed, or there is none."""
        text = self.text()
        try:
            document = read_json(text)
        except ValueError as error:
            raise RemotingError(f"the answer is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise RemotingError("the answer is not a JSON object")
        return document

    def text(self) -> str:
        """The text of the body. Raises RemotingError if the request failed."""
        if self.code != SUCCESS:
            advice = ""
            if self.code == NOT_SUPPORTED:
                advice = "; is a name server given as a broker, or a broker as a name server?"
            elif self.code == NO_PERMISSION or "AclException" in self.remark:
                advice = "; give the --access-key and --secret-key-file of a user who may read"
            raise RemotingError(f"refused with code {self.code}: {self.remark.partition(', Default')[0][:300]}{advice}")
        return self.body.decode("utf-8", "replace")


@frozen
class Credentials:
    """The key of a user of a broker with ACL, and its secret."""

    access_key: str
    secret_key: str

    def sign(self, fields: Mapping[str, str]) -> dict[str, str]:
        """The fields of a request without a body, with its signature. Source: AclClientRPCHook.doBeforeRequest."""
        signed = dict(fields) | {"AccessKey": self.access_key}
        content = "".join(signed[name] for name in sorted(signed)).encode()
        digest = hmac.new(self.secret_key.encode(), content, hashlib.sha1).digest()
        return signed | {"Signature": base64.b64encode(digest).decode()}


def encode(request: Request, opaque: int, credentials: Credentials | None = None) -> bytes:
    """The frame of a request. ``opaque``: its number on the connection."""
    fields = credentials.sign(request.fields) if credentials is not None else dict(request.fields)
    header = json.dumps(
        {
            "code": int(request.code),
            "extFields": fields,
            "flag": 0,
            "language": "PYTHON",
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": 0,
        },
        ensure_ascii=False,
    ).encode()
    return struct.pack(">ii", 4 + len(header), len(header)) + header


def decode(frame: bytes) -> Response | None:
    """The response in a frame without its first 4 bytes; None if it is a broker's request. Raises RemotingError."""
    try:
        (marked,) = struct.unpack_from(">I", frame)
        length = marked & 0xFFFFFF
        if marked >> 24 or 4 + length > len(frame):
            raise ValueError
        header = json.loads(frame[4 : 4 + length])
        if not header["flag"] & _RESPONSE:
            return None
        return Response(int(header["opaque"]), int(header["code"]), header.get("remark") or "", frame[4 + length :])
    except (ValueError, KeyError, TypeError, struct.error):
        raise RemotingError("what came is no frame of RocketMQ's remoting protocol with a JSON header") from None


def read_json(text: str) -> Any:
    """The value of a JSON text as RocketMQ writes it: keys may be whole numbers, or objects such as a MessageQueue.

    Such a key is its own JSON text. Raises ValueError if the text is something else.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        parts = (match[1] for match in _PART.finditer(text))
        try:
            return _value(next(parts), parts)
        except (StopIteration, RecursionError):
            raise ValueError("it ends too early, or is nested too deep") from None


def _value(part: str, parts: Iterator[str]) -> Any:
    if part == "{":
        members: dict[str, Any] = {}
        part = next(parts)
        while part != "}":
            key = _value(part, parts)
            if next(parts) != ":":
                raise ValueError("a key without a value")
            members[key if isinstance(key, str) else json.dumps(key)] = _value(next(parts), parts)
            part = _after_comma(next(parts), "}", parts)
        return members
    if part == "[":
        listed = []
        part = next(parts)
        while part != "]":
            listed.append(_value(part, parts))
            part = _after_comma(next(parts), "]", parts)
        return listed
    return json.loads(part)


def _after_comma(part: str, end: str, parts: Iterator[str]) -> str:
    if part not in (",", end):
        raise ValueError(f"{part[:40]} where a comma or {end} must be")
    return next(parts) if part == "," else part


class Connection:
    """A connection to a broker or a name server at ``address``, ``HOST:PORT``. It opens with the first request.

    Its methods raise RemotingError or OSError. Then it is closed, and the next request opens it again.
    """

    def __init__(self, address: str, credentials: Credentials | None = None) -> None:
        self.address = address
        self._credentials = credentials
        self._socket: socket.socket | None = None
        self._opaques = itertools.count(1)

    def ask(self, code: ReadRequest, fields: Mapping[str, str] | None = None) -> Response:
        """The response to one request."""
        (response,) = self.ask_all([Request(code, fields or {})])
        return response

    def ask_all(self, requests: Sequence[Request]) -> list[Response]:
        """The responses to some requests, in their order."""
        try:
            batches = (requests[i : i + AT_ONCE] for i in range(0, len(requests), AT_ONCE))
            return [response for batch in batches for response in self._ask_at_once(batch)]
        except (OSError, RemotingError):
            self.close()
            raise
        except ValueError as error:  # of a host that no name can be
            raise RemotingError(str(error)) from None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask_at_once(self, requests: Sequence[Request]) -> list[Response]:
        connected = self._socket = self._socket or socket.create_connection(host_and_port(self.address), TIMEOUT)
        numbered = {next(self._opaques): request for request in requests}
        connected.sendall(b"".join(encode(each, opaque, self._credentials) for opaque, each in numbered.items()))
        responses: dict[int, Response] = {}
        while len(responses) < len(numbered):
            (length,) = struct.unpack(">i", _receive(connected, 4))
            if not 4 <= length <= LARGEST_FRAME:
                raise RemotingError(f"{self.address} does not speak RocketMQ's remoting protocol")
            response = decode(_receive(connected, length))
            if response is not None and response.opaque in numbered:
                responses[response.opaque] = response
        return [responses[opaque] for opaque in numbered]


def _receive(connected: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        part = connected.recv(min(length - len(received), 1 << 20))
        if not part:
            raise ConnectionResetError(104, "the other side closed the connection")
        received += part
    return bytes(received)


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of ``HOST:PORT``. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"it must be HOST:PORT, not {address}")
    return host.strip("[]"), int(port)


def masters(name_servers: Sequence[Connection]) -> dict[str, str]:
    """By brokerName, the address of each master that a name server lists; without one, that of its first slave.

    Of several name servers, the first that answers counts. Raises RemotingError, OSError.
    """
    errors: list[OSError | RemotingError] = []
    for name_server in name_servers:
        try:
            table = name_server.ask(ReadRequest.GET_BROKER_CLUSTER_INFO).json().get("brokerAddrTable")
        except (OSError, RemotingError) as error:
            errors.append(error)
            continue
        by_name = {}
        for name, broker in table.items() if isinstance(table, dict) else ():
            addresses = broker.get("brokerAddrs") if isinstance(broker, dict) else None
            if isinstance(addresses, dict) and addresses:
                by_name[name] = str(addresses[min(addresses, key=int)])
        return by_name
    raise errors[0]


def reason(error: OSError | RemotingError) -> str:
    """Why a request failed, in a few words."""
    return str((error.strerror or error) if isinstance(error, OSError) else error)
