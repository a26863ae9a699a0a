"""Brokers that were restarted between nights: with other switches, or after they were killed.

In the captures, `switched` is a broker whose extension was off in nights 1 and 3, and on in nights 2 and 4. `refused`
is one without its property filter in night 3; one of its groups changed to an expression that does not compile, in
nights 1 and 2. `killed` was killed twice between its two nights (kill -9). `live` has what their consumers received.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import nightly, verify
from tests.captures import capture
from tests.nights.commands import Run, delivered, night, received_live, rows_of

SWITCHED = {("switched", 2), ("switched", 3), ("switched", 4), ("refused", 3), ("refused", 4)}
"""The nights before which the broker's switches changed."""


def restarted(run: Run, name: str, number: int, warehouse: Path) -> None:
    """A night after a restart with other switches says so with --redo-from."""
    folder = capture(name) / f"night_{number}"
    config = next(file for file in (folder / "broker.conf", capture(name) / "broker.conf") if file.exists())
    more: list[object] = []
    if (name, number) in SWITCHED:
        more = ["--redo-from", max(row["as_of"] for row in rows_of(warehouse, "run_ledger", "as_of")) + 1]
    given = night(warehouse, folder / "store", folder / "subscription_events.jsonl", config, *more)
    assert run(nightly, *given).code == 0


@pytest.mark.parametrize(("name", "nights"), [("switched", 4), ("refused", 4), ("killed", 2)])
def test_deliveries_and_consume_queues_are_the_brokers(run: Run, tmp_path: Path, name: str, nights: int) -> None:
    for number in range(1, nights + 1):
        restarted(run, name, number, tmp_path)
        store = capture(name) / f"night_{number}" / "store"
        assert run(verify, "--warehouse", tmp_path, "--store", store).out.startswith("identical"), number
    assert delivered(tmp_path) == received_live(name)
