"""advise: whether the filter bit map pays for each topic, its best parameters, and findings on subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jobs.cli import application, options
from jobs.cli.application import Parser
from jobs.cli.text import count, print_table, short
from schemas.printable import printable

if TYPE_CHECKING:
    from filtering.findings import Finding
    from schemas.answers.advice import TopicAdvice

EXAMPLES = ("--warehouse /data/mqsieve", "--warehouse /data/mqsieve --json")
NOT_SEEN = "POP and gRPC consumers, RocksDB queues and tiered storage use no bit map and are not in the tables"


def parser() -> Parser:
    parser = Parser("advise", __doc__, EXAMPLES)
    options.add_answer(parser)
    options.add_json(parser)
    return parser


def main(arguments: list[str]) -> None:
    chosen = parser().parse_args(arguments)
    from jobs.cli.findings import print_findings
    from jobs.cli.json_lines import print_json
    from schemas.answers.advice import advice
    from schemas.answers.findings import findings

    facts = options.facts_of(chosen)
    topics = advice(facts)
    found = findings(facts, options.session)
    broker = facts.broker
    is_on = broker.calculates_bit_maps
    if chosen.json:
        print_json(_json_object(topics, found, is_on), indent=2)
        return
    _print_topics(topics)
    bloom = broker.bloom_filter
    print(
        f"\nThe filter bit map is {'on' if is_on else 'off'} for all topics of the broker, with "
        f"maxErrorRateOfBloomFilter={bloom.f} and expectConsumerNumUseFilter={bloom.n}: {bloom.m} bits per message."
    )
    if not broker.enable_property_filter:
        print("enablePropertyFilter is off: the broker refuses every SQL92 pull, so the bit map has no effect")
    print(f"{NOT_SEEN}.\n")
    print_findings(found)


def _print_topics(topics: Sequence[TopicAdvice]) -> None:
    titles = ["topic", "bit map", "SQL92 groups", "evaluated at store", "reads without", "reads with", "bytes saved",
              "extension", "false pos. predicted", "measured", "best f, n"]  # fmt: skip
    rows = []
    for topic in topics:
        load, bit_map = topic.load, topic.bit_map
        dead = f" + {load.dead_groups:,} dead" if load.dead_groups else ""
        rows.append(
            [
                short(topic.topic), "on" if bit_map.use else "off", f"{load.groups:,}{dead}",
                count(bit_map.store_evaluations), count(bit_map.reads_without), count(bit_map.reads_with),
                count(bit_map.saved_bytes), count(bit_map.extension_bytes),
                f"{bit_map.false_positive_rate:.1%}",
                "-" if bit_map.measured_rate is None else f"{bit_map.measured_rate:.1%}",
                "-" if bit_map.best is None else f"{bit_map.best.f}, {bit_map.best.n}",
            ]
        )  # fmt: skip
    print_table(titles, rows)
    for topic in topics:
        print(f"  {printable(topic.topic)}: {'on' if topic.bit_map.use else 'off'}: {topic.bit_map.reason}")


def _json_object(topics: Sequence[TopicAdvice], found: Sequence[Finding], is_on: bool) -> dict[str, Any]:
    """The answer as the JSON object that docs/JSON.md describes."""
    from jobs.cli.findings import json_object

    topic_objects = [
        {"topic": topic.topic, "load": asdict(topic.load), "bit_map": asdict(topic.bit_map)} for topic in topics
    ]
    return {"bit_map_is_on": is_on, "topics": topic_objects} | json_object(found)


if __name__ == "__main__":
    application.run(main)
