"""deliver: which message reaches which group, through the broker's two filters and the client's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from filtering.broker_config import BrokerConfig
from filtering.replay.delivery import Delivery
from filtering.replay.delivery_blocks import ENTRY_COLUMNS, DeliveryBlocks
from filtering.replay.message_filter import MessageFilter, message_filters
from filtering.subscriptions.in_force import in_force_at_the_end
from jobs import application
from jobs.filter_hooks import (
    FilterHook,
    add_filter_hooks,
    check_groups,
    of_groups,
    read_filter_hooks,
    with_answers,
)
from jobs.run import Run, Step
from jobs.summary import print_steps
from schemas import deliveries, local_files
from schemas.consumequeue import CONSUMEQUEUE, log_end
from schemas.deliveries import BLOCK_TYPES, DELIVERY_BLOCKS
from schemas.delivery_stats import DELIVERY_STATS
from schemas.subscriptions import SUBSCRIPTIONS
from schemas.table import Table, sql_text


def deliver(run: Run, hooks: Sequence[FilterHook] = ()) -> Step:
    """Filters every entry of the broker for the subscriptions in force at the end of the log.

    ``hooks``: the filter hooks of the groups' clients.
    """

    def work() -> tuple[Table, ...]:
        of_broker = f"broker_name = {sql_text(run.broker.broker_name)}"
        entries = CONSUMEQUEUE.read(run.spark, run.warehouse)
        in_force = in_force_at_the_end(run.history, lambda: log_end(entries.where(of_broker)), run.broker)
        filters = message_filters(in_force, run.broker)
        check_groups(hooks, filters)
        kernel = DeliveryBlocks(compiled(filters, run.broker), of_groups(hooks))
        if hooks:
            made = with_answers(entries.where(of_broker), hooks).mapInArrow(kernel, BLOCK_TYPES)
        else:
            made = local_files.map_rows(entries, run.broker.broker_name, ENTRY_COLUMNS, kernel, BLOCK_TYPES)
        DELIVERY_BLOCKS.overwrite(made, run.warehouse, of_broker)
        blocks = DELIVERY_BLOCKS.read(run.spark, run.warehouse).where(of_broker)
        DELIVERY_STATS.append(deliveries.stats(blocks, run.started), run.warehouse)
        return DELIVERY_BLOCKS, DELIVERY_STATS

    return run.step("deliver", (run.broker, *hooks), (CONSUMEQUEUE, SUBSCRIPTIONS), work)


def compiled(filters: Iterable[MessageFilter], broker: BrokerConfig) -> dict[str, Delivery]:
    """By topic, the filters of all its groups, compiled."""
    by_topic: dict[str, list[MessageFilter]] = defaultdict(list)
    for message_filter in filters:
        by_topic[message_filter.topic].append(message_filter)
    return {topic: Delivery(of_topic, broker.bloom_filter.m) for topic, of_topic in by_topic.items()}


def main(arguments: list[str]) -> None:
    parser = application.broker_parser("deliver", __doc__)
    add_filter_hooks(parser)
    options = parser.parse_args(arguments)
    hooks = read_filter_hooks(options.filter_hooks)
    with Run.start("deliver", options) as run:
        deliver(run, hooks)
        print_steps(run)


if __name__ == "__main__":
    application.run(main)
