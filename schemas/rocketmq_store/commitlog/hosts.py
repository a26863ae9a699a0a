"""Born and store hosts: 4 or 16 bytes of address and an i32 port, as RocketMQ prints them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filtering.numba_compile import compiled
from schemas.rocketmq_store.gather import Bytes, Positions, binary_array
from schemas.rocketmq_store.properties.interning import Interner

IPV4_MAPPED = b"\0" * 10 + b"\xff\xff"
HEX = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16)  # two digits a byte


class Hosts:
    """Reads hosts from the chunks of a log. ``texts_of`` are functions from the bytes of a host to a text."""

    def __init__(self, *texts_of: Callable[[bytes], str]) -> None:
        self._texts_of = texts_of
        self._interner = Interner()
        self._known = 0
        self._texts = [pa.array([], pa.string()) for _ in texts_of]

    def read(self, log: Bytes, at: Positions, lengths: Positions) -> list[pa.DictionaryArray]:
        """The texts of the host at each position, a column for each function."""
        numbers = self._interner.numbers(log, at, lengths)
        if self._interner.count > self._known:
            hosts = binary_array(*self._interner.texts(self._known)).to_pylist()
            self._texts = [
                pa.concat_arrays([known, pa.array(map(text_of, hosts), pa.string())])
                for known, text_of in zip(self._texts, self._texts_of, strict=True)
            ]
            self._known = self._interner.count
        return [pa.DictionaryArray.from_arrays(numbers, texts, safe=False) for texts in self._texts]


def host_string(host: bytes) -> str:
    """``127.0.0.1:10911``, ``2001:db8:0:0:0:0:0:1:10911``: Java's InetAddress.getHostAddress, and the port."""
    address, port = _java_address(host[:-4]), int.from_bytes(host[-4:], "big")
    if len(address) == 4:
        return f"{'.'.join(map(str, address))}:{port}"
    groups = (int.from_bytes(address[i : i + 2], "big") for i in range(0, 16, 2))
    return f"{':'.join(f'{group:x}' for group in groups)}:{port}"


def msg_id_host(host: bytes) -> str:
    """The first part of a msgId: address and port in upper-case hex (MessageDecoder.createMessageId)."""
    return (_java_address(host[:-4]) + host[-4:]).hex().upper()


def _java_address(address: bytes) -> bytes:
    """The address after Java's InetAddress.getByAddress, which turns an IPv4-mapped address into an IPv4 one."""
    return address[12:] if address.startswith(IPV4_MAPPED) and len(address) == 16 else address


@compiled
def message_ids(log: Bytes, at: Positions, lengths: Positions, offsets: Positions, bounds: NDArray[np.int32]) -> Bytes:
    """Upper-case hex of host, port and physical offset (MessageDecoder.createMessageId), end to end.

    The id of record i is at ``bounds[i]`` to ``bounds[i + 1]``, two characters a byte.
    """
    out = np.full(bounds[-1] // 2, HEX[0], np.uint16)
    for i in range(len(at)):
        source = log[at[i] : at[i] + lengths[i]]
        target = out[bounds[i] // 2 : bounds[i + 1] // 2]
        if len(source) == 20 and _is_ipv4_mapped(source):
            # RocketMQ writes an IPv4 address into the space of an IPv6 one, and prints the whole space.
            source = source[12:]
        for j in range(len(source)):
            target[j] = HEX[source[j]]
        target = target[len(source) :]
        for j in range(8):
            target[j] = HEX[np.uint8(offsets[i] >> (56 - 8 * j))]
    return out.view(np.uint8)


@compiled
def _is_ipv4_mapped(host: Bytes) -> bool:
    for i in range(10):
        if host[i]:
            return False
    return bool(host[10] == 255 and host[11] == 255)
