"""What a person reads at the end of a nightly run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from filtering.replay.message_filter import refusal
from filtering.subscriptions.events import SubscriptionEvent
from filtering.subscriptions.history import SubscriptionRow
from filtering.subscriptions.in_force import in_force_at_the_end
from jobs.lost_messages import counts, inconsistencies, losses_of, lost_messages, told
from jobs.run import Run
from schemas import message_log
from schemas.commitlog import COMMITLOG
from schemas.delivery_stats import DELIVERY_STATS
from schemas.quarantine import QUARANTINE
from schemas.store.recovery import Recovery, recovery
from schemas.table import sql_text

COLUMNS = (
    ("scanned", "scanned"),
    ("passed_stage1", "stage 1"),
    ("passed_stage2", "stage 2"),
    ("delivered", "delivered"),
    ("hash_collisions", "client drops"),
    ("dropped_by_hook", "hook drops"),
    ("bit_map_false_positives", "false pos."),
    ("evaluation_errors", "errors"),
)
LEGEND = """\
scanned: entries of the group's queues · stage 1: passed on the consume queue entry · stage 2: passed on the message,
and returned by the broker · delivered: passed the client's tag check (others: client drops) and its hooks
false pos.: passed stage 1 by the filter bit map, not stage 2 · errors: the expression failed, which is no match"""
LONGEST_NAME = 40
LONGEST_EXPRESSION = 60
QUARANTINE_LINES = 20


def print_summary(run: Run, options: argparse.Namespace) -> None:
    """Per group what each filter passed, then what needs attention, then where everything is."""
    messages = COMMITLOG.read(run.spark, run.warehouse).where(f"broker_name = {sql_text(run.broker.broker_name)}")
    (log,) = messages.agg(
        F.count("*").alias("messages"),
        F.max("store_timestamp").alias("end"),
        F.count_if(F.col("body_crc") != F.col("body_crc_computed")).alias("damaged_bodies"),
    ).collect()
    in_force = in_force_at_the_end(run.history, lambda: log["end"] or 0, run.broker)
    _print_groups(run, {(row.consumer_group, row.topic): row.expression or "*" for row in in_force})
    if not log["messages"]:
        print(f"no message: nothing in {options.store} could be decoded")
    if not in_force:
        print("no subscription: nothing can be delivered")
    _print_attention(run, in_force)
    _print_inconsistent(run, options.subscriptions.events.events)
    _print_damage(run, options, messages, log["damaged_bodies"])
    print_steps(run)


def _print_groups(run: Run, expressions: dict[tuple[str, str], str]) -> None:
    """``expressions`` by group and topic."""
    of_broker = DELIVERY_STATS.read(run.spark, run.warehouse).where(F.col("broker_name") == run.broker.broker_name)
    latest = of_broker.where(F.col("run") == F.lit(run.last_run("deliver")))
    sums = [F.sum(name).alias(name) for name, _ in COLUMNS]
    rows = latest.groupBy("consumer_group", "topic").agg(*sums).collect()
    rows.sort(key=lambda row: (row["topic"], row["consumer_group"]))
    if not rows:
        return
    width = max(len(_short(row["consumer_group"])) for row in rows)
    columns = [each for each in COLUMNS if each[0] != "dropped_by_hook" or any(row["dropped_by_hook"] for row in rows)]
    titles = [f"{title:>{2 + max(len(title), *(len(_count(row[name])) for row in rows))}}" for name, title in columns]
    print(LEGEND)
    topic = None
    for row in rows:
        if row["topic"] != topic:
            topic = row["topic"]
            print(f"\n{_short(topic)}")
            print(f"  {'group':<{width}}{''.join(titles)}  filter")
        counts = [f"{_count(row[name]):>{len(title)}}" for (name, _), title in zip(columns, titles, strict=True)]
        expression = " ".join(expressions.get((row["consumer_group"], row["topic"]), "").split())
        print(f"  {_short(row['consumer_group']):<{width}}{''.join(counts)}  {_short(expression, LONGEST_EXPRESSION)}")
    print()


def _print_attention(run: Run, in_force: Sequence[SubscriptionRow]) -> None:
    for subscription in in_force:
        whose = f"{subscription.consumer_group} on {subscription.topic}"
        code = refusal(subscription, run.broker)
        if code is not None:
            print(f"refused: the broker answers every pull of {whose} with {code.name}")
        if subscription.compile_error is not None:
            print(f"invalid: {whose}: {subscription.compile_error}")


def _print_inconsistent(run: Run, events: Sequence[SubscriptionEvent]) -> None:
    """The groups whose clients disagree about a topic, as they last did."""
    intervals = inconsistencies(events)
    losses = losses_of(run, events, intervals)
    lost = counts(lost_messages(run, losses), losses) if losses else []
    for (group, topic), states in groupby(intervals, lambda interval: (interval.consumer_group, interval.topic)):
        *_, last = states
        of_group = [
            count
            for loss, count in zip(losses, lost, strict=True)
            if loss.in_force is not None and (loss.own.consumer_group, loss.own.topic) == (group, topic)
        ]
        print(f"inconsistent: {group} on {topic}: {told(last)}; {sum(of_group):,} messages lost to overruled clients")


def _print_damage(run: Run, options: argparse.Namespace, messages: DataFrame, damaged_bodies: int) -> None:
    """What could not be decoded, or is not what was stored."""
    if damaged_bodies:
        print(f"damaged: {damaged_bodies:,} messages whose body is not the one that was stored (crc32); kept")
    quarantined = QUARANTINE.read(run.spark, run.warehouse).where(F.col("broker_name") == run.broker.broker_name)
    reasons = quarantined.groupBy("source_file", "reason").agg(
        F.count("*").alias("pieces"), F.min("offset").alias("at")
    )
    counted = reasons.orderBy("source_file", "at").collect()
    for row in counted[:QUARANTINE_LINES]:
        place = f"{'offset' if row['source_file'].isdecimal() else 'line'} {row['at']:,}"
        place = place if row["pieces"] == 1 else f"{row['pieces']:,} times from {place} on"
        print(f"quarantined: {row['source_file']}, {place}: {row['reason']}")
    if len(counted) > QUARANTINE_LINES:
        print(f"quarantined: {len(counted) - QUARANTINE_LINES:,} more reasons; export quarantine lists all")
    of_log = any(row["source_file"].isdecimal() for row in counted)
    if (damaged_bodies or of_log) and not message_log.is_message_log(options.store):
        size = run.broker.mapped_file_size_commit_log if options.broker_config else None
        _print_recovery(recovery(str(options.store), size), messages)


def _print_recovery(would: Recovery, messages: DataFrame) -> None:
    """What the broker itself would make of the log."""
    if would.refused is not None:
        print(f"the broker itself would not start on this store: {would.refused}")
        return
    ends = {
        "a clean shutdown": would.end_after_clean_shutdown or 0,
        "a crash": would.end_after_crash or 0,
    }
    kept = [F.count_if(F.col("commitlog_offset") < end) for end in ends.values()]
    (counts,) = messages.agg(F.count("*"), *kept).collect()
    for (after, end), kept_count in zip(ends.items(), counts[1:], strict=True):
        print(
            f"the broker itself, restarted after {after}, would end its log at offset {end:,}: "
            f"{kept_count:,} of these {counts[0]:,} messages"
        )


def print_steps(run: Run) -> None:
    """The switches that were replayed, what each step wrote, and where."""
    bit_map = "on" if run.broker.enable_calc_filter_bit_map and run.broker.enable_consume_queue_ext else "off"
    sql92 = "on" if run.broker.enable_property_filter else "off"
    print(f"broker {run.broker.broker_name}: property filter {sql92}, filter bit map {bit_map}")
    print(f"  ({run.broker_source})")
    for step in run.steps:
        done = "nothing new" if step.rows is None else f"{step.rows:,} rows in {', '.join(step.wrote) or 'no table'}"
        print(f"  {step.job:<9}{step.seconds:>6.1f} s  {done}")
    if all(step.rows is None for step in run.steps):
        print("There was nothing new: no table changed.")
    print(f"The tables are in {run.warehouse.location}; to write one as JSON lines:")
    print(f"  ./spark-submit.sh export deliveries --warehouse {run.warehouse.location} --output deliveries.jsonl")


def _count(number: int) -> str:
    return f"{number:,}" if number else "-"


def _short(text: str, longest: int = LONGEST_NAME) -> str:
    return text if len(text) <= longest else f"{text[: longest // 2 - 1]}…{text[-longest // 2 :]}"
