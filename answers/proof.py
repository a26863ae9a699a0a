"""How many deliveries are proven by traces of clients, and what traces contradict.

A trace without a delivery contradicts the table, and a complete trace may deny a delivery
(:mod:`filtering.traces`). Where events leave a message uncertain, the night has let the traces
decide (:mod:`jobs.night.traced_deliveries`): these deliveries have the source TRACED.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from answers.facts import BrokerFacts
from filtering.delivery import Outcome
from filtering.frozen import frozen
from filtering.traces import denied, proven
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERY_BLOCKS, TRACED, table_of_pairs
from schemas.delta.table_rows import within
from schemas.messages.traces import (
    TRACE_COLUMNS,
    compared,
    is_for_any_client,
    keys,
    traceable,
    with_message,
)
from schemas.run_ledger import unread_times
from schemas.tables import CONSUMPTIONS


@frozen
class Proof:
    """What traces say of the deliveries of one broker.

    ``deliveries``: PAIRS that were delivered to groups that trace, with ``is_proven`` and ``is_denied``. ``traces``:
    rows of CONSUMPTIONS that can be judged, with ``has_delivery``. ``decided``: PAIRS that traces decided.
    """

    deliveries: pa.Table
    traces: pa.Table
    decided: pa.Table

    @property
    def contradicted(self) -> pa.Table:
        """The traces without a delivery."""
        return self.traces.filter(pc.invert(self.traces["has_delivery"]))

    @property
    def denied(self) -> pa.Table:
        """The deliveries that complete traces deny, though nothing was uncertain."""
        return self.deliveries.filter(self.deliveries["is_denied"])


def proof(facts: BrokerFacts, first_run: str = "") -> Proof | None:
    """What is delivered, and traced, by the runs from ``first_run`` on. None if no client traced anything there.

    Traces whose message is not in the tables, or may be one of two, are not judged; nor are groups that are not known.
    """
    runs = [entry.run for entry in facts.entries]
    before = max((run for run in runs if run < first_run), default="")
    rows = with_message(facts.rows(CONSUMPTIONS, TRACE_COLUMNS, [within("run", before)]))
    known = pa.array(facts.groups, pa.string())
    rows = rows.filter(pc.is_in(rows["consumer_group"], value_set=known))
    if not pc.any(pc.greater_equal(rows["run"], first_run)).as_py():
        return None
    deliveries, decided = _decided(facts, pc.unique(rows["consumer_group"]).to_pylist(), before)
    traces, compared_deliveries = compared(rows, deliveries, facts.as_of)
    has_delivery = np.isin(traces.key, compared_deliveries.key)
    if not has_delivery.all():
        missing = pc.unique(rows.filter(pa.array(~has_delivery))["consumer_group"]).to_pylist()
        earlier, _ = _decided(facts, missing, "", before)
        traced_keys, earlier_keys = keys(rows, earlier)
        has_delivery |= np.isin(traced_keys, earlier_keys)
    is_judged = pc.and_(
        pc.and_(pc.equal(rows["records"], 1), pc.greater_equal(rows["run"], first_run)),
        pc.greater_equal(rows["commitlog_offset"], facts.last.messages_from),
    )
    judged = rows.append_column("has_delivery", pa.array(has_delivery)).filter(is_judged)
    storage, files = facts.warehouse.log(COMMITLOG).storage, facts.warehouse.files(COMMITLOG, facts.name)
    unread = unread_times(facts.nights[:-1], facts.last.log_start or 0, facts.last.last_stored, facts.as_of)
    is_denied = denied(
        compared_deliveries, traces, unread, lambda at: traceable(storage, files, deliveries.take(at), rows)
    )
    delivery_keys, denied_keys = keys(deliveries, decided.filter(pc.equal(decided["outcome"], Outcome.DENIED)))
    is_denied &= ~np.isin(delivery_keys, denied_keys)
    is_denied &= ~is_for_any_client(deliveries, facts.pops.planned.keys() | facts.broadcasting.keys())
    deliveries = deliveries.append_column("is_proven", pa.array(proven(compared_deliveries, traces)))
    deliveries = deliveries.append_column("is_denied", pa.array(is_denied))
    deliveries, decided = (each.filter(pc.greater_equal(each["run"], first_run)) for each in (deliveries, decided))
    return Proof(deliveries, judged, decided)


def _decided(
    facts: BrokerFacts, groups: Sequence[str], first: str, below: str | None = None
) -> tuple[pa.Table, pa.Table]:
    """Of some groups, by the runs from ``first`` on and before ``below``: deliveries, and what traces decided."""
    blocks = facts.rows(DELIVERY_BLOCKS, where=[within("run", first, below)])
    stored = table_of_pairs(blocks, groups, [Outcome.DELIVERED, Outcome.DENIED])
    is_delivered, is_traced = pc.equal(stored["outcome"], Outcome.DELIVERED), pc.equal(stored["source"], TRACED)
    return stored.filter(is_delivered), stored.filter(is_traced)
