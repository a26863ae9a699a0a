"""Born and store hosts: 4 or 16 bytes of address and an i32 port, as RocketMQ prints them."""

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from schemas.store.gather import Bytes, Positions, binary_array, spans

IPV4_MAPPED = b"\0" * 10 + b"\xff\xff"
HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def host_strings(log: Bytes, at: Positions, lengths: Positions) -> pa.StringArray:
    """``127.0.0.1:10911``, ``2001:db8:0:0:0:0:0:1:10911``: Java's InetAddress.getHostAddress, and the port."""
    distinct = binary_array(*spans(log, at, lengths)).dictionary_encode()
    texts = pa.array([_host_string(host) for host in distinct.dictionary.to_pylist()], pa.string())
    return texts.take(distinct.indices)


def _host_string(host: bytes) -> str:
    address, port = _java_address(host[:-4]), int.from_bytes(host[-4:], "big")
    if len(address) == 4:
        return f"{'.'.join(map(str, address))}:{port}"
    groups = (int.from_bytes(address[i : i + 2], "big") for i in range(0, 16, 2))
    return f"{':'.join(f'{group:x}' for group in groups)}:{port}"


def _java_address(address: bytes) -> bytes:
    """Java's InetAddress.getByAddress makes an IPv4 address of an IPv4-mapped one."""
    return address[12:] if address.startswith(IPV4_MAPPED) and len(address) == 16 else address


@njit(cache=True)
def message_ids(log: Bytes, at: Positions, lengths: Positions, offsets: Positions, bounds: NDArray[np.int32]) -> Bytes:
    """Upper-case hex of host, port and physical offset (MessageDecoder.createMessageId), end to end.

    The id of record i is at ``bounds[i]`` to ``bounds[i + 1]``, two characters a byte.
    """
    out = np.full(bounds[-1], HEX[0], np.uint8)
    for i in range(len(at)):
        source = at[i]
        length = lengths[i]
        target = bounds[i]
        mapped = length == 20 and log[source + 10] == 255 and log[source + 11] == 255
        if mapped:
            for j in range(10):
                mapped = mapped and log[source + j] == 0
        if mapped:
            # RocketMQ writes an IPv4 address into room for an IPv6 one, and prints the room.
            source += 12
            length = 8
        for j in range(length):
            byte = log[source + j]
            out[target + 2 * j] = HEX[byte >> 4]
            out[target + 2 * j + 1] = HEX[byte & 15]
        target += 2 * length
        for j in range(16):
            out[target + j] = HEX[(offsets[i] >> (60 - 4 * j)) & 15]
    return out
