"""lag: how far groups are behind, in entries, in messages they would receive, and by the broker's estimate."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from answers.rendering import short, time
from filtering.counted import counted
from jobs.cli import application, options
from jobs.cli.application import Parser, given_name, input_file
from jobs.cli.output import age, count, print_data, print_json, print_table_of_brokers
from schemas.errors import UsageError

if TYPE_CHECKING:
    from answers.facts import BrokerFacts
    from answers.lag import Lag

EXAMPLES = (
    "--warehouse /data/mqsieve",
    "--warehouse /data/mqsieve --group cg_paid --offsets store/config/consumerOffset.json",
    "--warehouse /data/mqsieve --namesrv 10.0.0.5:9876   # as of now",
)
UNFILTERED = "unfiltered"
TITLES = ("behind", "would get", UNFILTERED, "broker estimate", "estimate error", "oldest", "pulls")
OLDER_KEYS = {
    "lag": "behind", "exact_lag": "would_get", "oldest_pending_at": "oldest_at", "oldest_pending_ms": "oldest_ms",
}  # fmt: skip


def parser() -> Parser:
    parser = Parser("lag", __doc__, EXAMPLES)
    options.add_answer(parser, all_brokers=True)
    parser.add_argument(
        "--group",
        type=given_name,
        action="append",
        metavar="NAME",
        help="only this consumer group, queue by queue; repeatable",
    )
    parser.add_argument("--topic", type=given_name, action="append", metavar="NAME", help="only this topic; repeatable")
    parser.add_argument(
        "--offsets", type=input_file, metavar="FILE",
        help="a newer consumerOffset.json of the broker; default: the one of the last night",
    )  # fmt: skip
    options.add_name_server(parser, "lag by the offsets, subscriptions and ends of queues of now")
    output = parser.add_mutually_exclusive_group()
    options.add_json(output)
    output.add_argument("--prometheus", action="store_true", help="answer in Prometheus's text format")
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    from answers.facts import NewerState
    from answers.lag import count_subscriptions, lag_of_brokers, why_without_rows
    from jobs.cli.prometheus import lag_metrics
    from schemas.rocketmq_store.config_files import ConfigFileError, parse_consumer_offsets

    if args.offsets is not None and args.namesrv is not None:
        raise UsageError("give either --offsets or --namesrv, which has newer offsets")
    brokers = options.brokers_of(args)
    several = len(brokers) > 1
    if args.offsets is not None:
        if several:
            raise UsageError("--offsets has the offsets of one broker: say which (--broker NAME)")
        try:
            newer = NewerState(*parse_consumer_offsets(args.offsets.read_bytes(), str(args.offsets)))
        except ConfigFileError as error:
            raise UsageError(f"{error}; give config/consumerOffset.json of the broker's store") from None
        brokers = [replace(brokers[0], newer=newer)]
    is_summary = not (args.json or args.prometheus or args.group)
    answers = lag_of_brokers(brokers, args.group, args.topic, only_behind=is_summary)
    rows = [(facts.name, row) for facts, lags in answers for row in lags]
    if args.json:
        names = [{"broker_name": broker} if several else {} for broker, _ in rows]
        print_json(*(name | row.fields | _older_keys(row) for name, (_, row) in zip(names, rows, strict=True)))
    elif args.prometheus:
        print_data(*lag_metrics(rows))
    elif not any(facts.topics for facts in brokers):
        print("no message has been filtered yet: no group is behind")
    else:
        subscriptions = sum(count_subscriptions(facts, args.topic) for facts in brokers) if is_summary else len(rows)
        if not subscriptions and (args.group or args.topic):
            print(why_without_rows(brokers, args.group, args.topic))
        elif is_summary:
            _print_groups(rows, subscriptions, several)
        else:
            _print_queues(rows, several)
        _print_beyond_end(answers, several)
        for facts in brokers:
            _print_in_flight(facts, args, several)
        print(_ends(brokers) if several else _end(brokers[0], args))


def _end(broker: BrokerFacts, args: argparse.Namespace) -> str:
    """The end of the last night of one broker, and where the offsets are from."""
    if args.namesrv is not None:
        night = f"the last night ended at {time(broker.as_of)}, and filtered nothing after that"
        return f"as of {time(broker.asked_at)} UTC, when {short(broker.name)} was asked; {night}"
    offsets = "--offsets counts from newer offsets"
    if broker.newer is not None:
        known = {group for group, _ in broker.newer.committed}
        without = [group for group in args.group or () if group not in known]
        offsets = f"committed offsets of {args.offsets}" + (f", without {', '.join(without)}" if without else "")
    return f"as of {time(broker.as_of)} UTC, the end of the last night; {offsets}"


def _ends(brokers: Sequence[BrokerFacts]) -> str:
    """The end of the last night of several brokers."""
    oldest, newest = (choose(brokers, key=lambda facts: facts.as_of) for choose in (min, max))
    nights = f"the ends of the last nights of {len(brokers):,} brokers"
    return f"as of {time(newest.as_of)} UTC, {nights}; the oldest is that of {short(oldest.name)}, {time(oldest.as_of)}"


def _print_groups(rows: Sequence[tuple[str, Lag]], subscriptions: int, several: bool) -> None:
    """A line for each broker, group and topic that is behind, of so many ``subscriptions``.

    ``rows``: the queues in which a group is behind. ``several``: whether there are several brokers.
    """
    by_key = groupby(rows, key=lambda row: (row[0], *row[1].key))
    queues_by_key = [(key, [row for _, row in queue_rows]) for key, queue_rows in by_key]
    behind = [(key, queues) for key, queues in queues_by_key if any(row.behind or row.would_get for row in queues)]
    behind.sort(key=lambda subscription: -sum(row.would_get for row in subscription[1]))
    if behind:
        lines = [(list(map(short, key)), queues) for key, queues in behind]
        _print_table(("broker", "group", "topic"), lines, several)
    ahead = {key for key, queues in queues_by_key if any(row.ahead for row in queues)} - {key for key, _ in behind}
    groups_text = counted(subscriptions, "subscription is", "subscriptions are")
    print(f"{subscriptions - len(behind) - len(ahead):,} of {groups_text} up to date")


def _print_queues(rows: Sequence[tuple[str, Lag]], several: bool) -> None:
    lines = [
        ([short(broker), short(row.consumer_group), short(row.topic), str(row.queue_id),
          "-" if row.committed is None else f"{row.committed:,}", f"{row.end:,}"], [row])
        for broker, row in rows
    ]  # fmt: skip
    _print_table(("broker", "group", "topic", "queue", "committed", "end"), lines, several)


def _print_table(titles: Sequence[str], lines: Sequence[tuple[list[str], Sequence[Lag]]], several: bool) -> None:
    """``lines``: the cells below ``titles`` of each line, and the queues that it adds up."""
    left_out = set() if any(row.unfiltered for _, rows in lines for row in rows) else {UNFILTERED}
    columns = [index for index, title in enumerate(TITLES) if title not in left_out]
    cells = [
        [*first, *(cells_of_rows[index] for index in columns)]
        for first, rows in lines
        for cells_of_rows in [_cells(rows)]
    ]
    print_table_of_brokers([*titles, *(TITLES[index] for index in columns)], cells, several, left=3)


def _print_beyond_end(answers: Sequence[tuple[BrokerFacts, list[Lag]]], several: bool) -> None:
    """A line for each group and topic with committed offsets beyond the end of a queue."""
    from answers.lag import beyond_end

    for facts, rows in answers:
        for group in beyond_end(rows):
            where = f" of {short(facts.name)}" if several else ""
            print(f"{short(group.consumer_group)} on {short(group.topic)}{where}: {group.text}")


def _print_in_flight(facts: BrokerFacts, args: argparse.Namespace, several: bool) -> None:
    """A line for each group and topic with messages that were popped and not acknowledged."""
    from answers.lag import open_pops

    where = f" of {short(facts.name)}" if several else ""
    by_key = groupby(sorted(open_pops(facts).items(), key=lambda each: each[0]), key=lambda each: each[0][:2])
    for (group, topic), queues in by_key:
        if group not in (args.group or (group,)) or topic not in (args.topic or (topic,)):
            continue
        pops = [each for _, each in queues]
        times = [each.until for each in pops if each.until is not None]
        until = f" until {time(max(times))}" if times else ""
        overdue = sum(each.overdue for each in pops)
        again = f", {overdue:,} to be redelivered" if overdue else ""
        in_flight = sum(each.in_flight for each in pops)
        print(f"{short(group)} on {short(topic)}{where}: {in_flight:,} in flight{until}{again}")


def _cells(rows: Sequence[Lag]) -> list[str]:
    ages = [row.oldest_ms for row in rows if row.oldest_ms is not None]
    estimates = [row.broker_estimate for row in rows if row.broker_estimate is not None]
    off = sum(row.estimate_error or 0 for row in rows)
    return [
        _behind(sum(row.behind for row in rows), sum(row.ahead for row in rows)),
        count(sum(row.would_get for row in rows)),
        count(sum(row.unfiltered for row in rows)),
        count(sum(estimates)) if estimates else "none",
        f"{off:+,}" if off else "-",
        age(max(ages)) if ages else "-",
        rows[0].pulls,
    ]


def _behind(behind: int, ahead: int) -> str:
    """The cell of the entries that a group is behind; as in mqadmin, less than 0 if it is beyond the end."""
    return f"-{ahead:,}" if ahead and not behind else count(behind)


def _older_keys(row: Lag) -> dict[str, int | None]:
    """Fields of the JSON under the names that they had before; docs/JSON.md promises that fields keep their names."""
    return {older: getattr(row, name) for older, name in OLDER_KEYS.items()}


if __name__ == "__main__":
    application.run(main)
