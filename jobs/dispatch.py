"""dispatch: consume queue entries for the messages of the commitlog, as the broker derives them."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from filtering.broker_config import BrokerConfig
from filtering.replay.calc_bit_map import filter_data_in_force
from filtering.replay.dispatch import (
    MESSAGE_COLUMNS,
    TRANSACTION_FLAGS,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Dispatch,
)
from filtering.subscriptions.history import SubscriptionRow
from jobs import application
from jobs.run import Run, Step
from jobs.summary import print_steps
from schemas.commitlog import COMMITLOG
from schemas.consumequeue import CONSUMEQUEUE, ENTRY_TYPES
from schemas.subscriptions import SUBSCRIPTIONS
from schemas.table import Table, sql_text


def dispatch(run: Run) -> Step:
    """Gives every message of the broker its entry, with the bit map over the groups of its time."""

    def work() -> tuple[Table, ...]:
        of_broker = f"broker_name = {sql_text(run.broker.broker_name)}"
        messages = COMMITLOG.read(run.spark, run.warehouse).where(of_broker)
        CONSUMEQUEUE.overwrite(entries(messages, run.history, run.broker), run.warehouse, of_broker)
        return (CONSUMEQUEUE,)

    return run.step("dispatch", (run.broker,), (COMMITLOG, SUBSCRIPTIONS), work)


def entries(messages: DataFrame, history: Iterable[SubscriptionRow], broker: BrokerConfig) -> DataFrame:
    """Rows of commitlog to rows of consumequeue, in the order of the queues."""
    transaction = F.col("sys_flag").bitwiseAND(TRANSACTION_FLAGS)
    has_entry = transaction.isNull() | ~transaction.isin(TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
    order = ("topic", "store_date", "queue_id", "queue_offset")
    in_order = (
        messages.where(has_entry)
        .select(*MESSAGE_COLUMNS, "store_date")
        .repartitionByRange(*order)
        .sortWithinPartitions(*order)
        .select(*MESSAGE_COLUMNS)
    )
    dispatcher = Dispatch(filter_data_in_force(history, broker), broker.bloom_filter.m, broker.delay_levels)
    return in_order.mapInArrow(dispatcher, ENTRY_TYPES)


def main(arguments: list[str]) -> None:
    options = application.broker_parser("dispatch", __doc__).parse_args(arguments)
    with Run.start("dispatch", options) as run:
        dispatch(run)
        print_steps(run)


if __name__ == "__main__":
    application.run(main)
