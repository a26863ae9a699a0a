"""Reads the deliveries of single messages from delivery_blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from schemas.answers.facts import BrokerFacts
from schemas.deliveries import DELIVERY_BLOCKS
from schemas.delta.open_data_file import OpenDataFile, open_data_file
from schemas.delta.table_rows import may_hold, one_of, within


@dataclass(frozen=True)
class Delivery:
    """The delivery of a message to a group: a row of deliveries. Times are ms."""

    consumer_group: str
    outcome: str
    subscription_from: int
    available_at: int
    run: str

    def is_alike(self, other: Delivery) -> bool:
        """Whether the group received another message in the same run, by the same subscription."""
        return replace(self, available_at=other.available_at) == other


def deliveries_of(facts: BrokerFacts, messages: Sequence[Mapping[str, int | str]]) -> dict[int, list[Delivery]]:
    """The deliveries of some messages, by physical offset, in the order of time.

    ``messages``: rows with the columns commitlog_offset, topic and store_timestamp.
    """
    if not messages:
        return {}
    found: defaultdict[int, list[Delivery]] = defaultdict(list)
    times = [int(row["store_timestamp"]) for row in messages]
    conditions = [
        one_of("topic", sorted({str(row["topic"]) for row in messages})),
        within("first_store_timestamp", below=max(times) + 1),
        within("last_store_timestamp", min(times)),
    ]
    wanted = np.array([row["commitlog_offset"] for row in messages], np.int64)
    storage = facts.warehouse.log(DELIVERY_BLOCKS).storage
    for file in facts.warehouse.files(DELIVERY_BLOCKS, facts.name):
        with open_data_file(DELIVERY_BLOCKS, storage, file.path) as opened:
            for number, group in enumerate(opened.row_groups):
                if may_hold(group, conditions):
                    for offset, delivery in _in_row_group(opened, number, wanted):
                        found[offset].append(delivery)
    return {offset: sorted(each, key=lambda delivery: delivery.available_at) for offset, each in found.items()}


def _in_row_group(opened: OpenDataFile, group: int, wanted: np.ndarray) -> Iterator[tuple[int, Delivery]]:
    """The wanted physical offsets in a row group, each with its deliveries."""
    places = opened.read(group, ["commitlog_offset", "store_timestamp", "run"])
    positions = [np.flatnonzero(np.isin(np.asarray(offsets.values), wanted)) for offsets in places["commitlog_offset"]]
    if not any(len(block_positions) for block_positions in positions):
        return
    matches = opened.read(group, ["matches"])["matches"].combine_chunks()
    for row, block_positions in enumerate(positions):
        if len(block_positions):
            block = {name: places[name][row] for name in places.column_names}
            yield from _in_block(block, matches.slice(row, 1).flatten(), block_positions.tolist())


def _in_block(
    block: Mapping[str, pa.Scalar], matches: pa.StructArray, positions: Sequence[int]
) -> Iterator[tuple[int, Delivery]]:
    """The physical offsets at some positions of a block, each with its deliveries.

    ``matches``: those of the block, as :mod:`filtering.delivery.delivery_blocks` describes them.
    """
    outcomes, recipients = matches.field("outcome"), matches.field("recipients")
    listed, bits = matches.field("positions"), matches.field("bits")
    lists, words = np.asarray(listed.offsets), np.asarray(bits.offsets)
    has_list, has_bits = (array.is_valid().to_numpy(zero_copy_only=False) for array in (listed, bits))
    listed_positions, bit_words = np.asarray(listed.values), np.asarray(bits.values)
    for position in positions:
        at = np.flatnonzero(listed_positions[lists[0] : lists[-1]] == position) + lists[0]
        hits = ~has_list & ~has_bits
        hits[np.searchsorted(lists, at, "right") - 1] = True
        word = bit_words[words[:-1][has_bits] + position // 64]
        hits[has_bits] = word >> (position % 64) & 1 == 1
        offset, stored = (block[name].values[position].as_py() for name in ("commitlog_offset", "store_timestamp"))
        for match in np.flatnonzero(hits).tolist():
            for recipient in recipients[match].as_py():
                group, since = recipient["consumer_group"], recipient["subscription_from"]
                available_at = stored if recipient["available_at"] is None else recipient["available_at"]
                yield offset, Delivery(group, outcomes[match].as_py(), since, available_at, block["run"].as_py())
