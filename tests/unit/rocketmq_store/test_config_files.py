"""config/consumerOffset.json with values that a broker does not write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.rocketmq_store.config_files import parse_consumer_offsets


@pytest.mark.parametrize("offset", [-1, -(2**70), 2**63, True, 1.5, "7", None])
def test_an_offset_that_is_none_does_not_count(offset: Any) -> None:
    """Negative offsets mean to the broker that the group has none."""
    document = {"offsetTable": {"T@cg": {"0": offset, "1": 7, str(2**31): 7}, "T@\ud800": {"0": 1}}}
    committed, _ = parse_consumer_offsets(json.dumps(document).encode(), "consumerOffset.json")
    assert committed == {("cg", "T"): {1: 7}}


def test_a_time_that_is_no_number_is_unknown() -> None:
    document = {"offsetTable": {}, "dataVersion": {"timestamp": True}}
    assert parse_consumer_offsets(json.dumps(document).encode(), "consumerOffset.json") == ({}, None)
