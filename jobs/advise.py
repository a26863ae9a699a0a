"""advise: whether the filter bit map pays for each topic, its best parameters, and findings on subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from answers.rendering import short
from jobs.cli import application, options
from jobs.cli.application import Parser
from jobs.cli.output import count, print_by_line, print_json_of_brokers, print_table_of_brokers
from schemas.errors import printable

if TYPE_CHECKING:
    from answers.advise import TopicAdvice
    from answers.facts import BrokerFacts

EXAMPLES = ("--warehouse /data/mqsieve", "--warehouse /data/mqsieve --json")
NOT_SEEN = "POP and gRPC consumers and tiered storage use no bit map, and do not count here"


def parser() -> Parser:
    parser = Parser("advise", __doc__, EXAMPLES)
    options.add_answer(parser, all_brokers=True)
    options.add_json(parser)
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    from answers.advise import advice
    from answers.lint import findings, findings_of_brokers
    from jobs.lint import json_object, print_findings

    brokers = options.brokers_of(args)
    topics = [(facts, advice(facts)) for facts in brokers]
    by_broker = findings_of_brokers(brokers, lambda facts: findings(facts, options.session))
    several = len(brokers) > 1
    if args.json:
        print_json_of_brokers(
            [
                (facts.name, _topics_object(facts, topic_advice) | json_object(by_broker.by_broker[facts.name]))
                for facts, topic_advice in topics
            ]
        )
        return
    _print_topics([(facts.name, topic) for facts, topic_advice in topics for topic in topic_advice], several)
    print()
    if several:
        print_by_line((facts.name, line) for facts in brokers for line in _switches(facts))
    else:
        for line in _switches(brokers[0]):
            print(line)
    print(f"{NOT_SEEN}.\n")
    print_findings(by_broker)


def _switches(facts: BrokerFacts) -> Iterator[str]:
    """What the broker's configuration says about the bit map."""
    broker, bloom = facts.broker, facts.broker.bloom_filter
    yield (
        f"The filter bit map is {'on' if broker.calculates_bit_maps else 'off'} for all topics of the broker, with "
        f"maxErrorRateOfBloomFilter={bloom.f} and expectConsumerNumUseFilter={bloom.n}: {bloom.m} bits per message."
    )
    if not broker.enable_property_filter:
        yield "enablePropertyFilter is off: the broker refuses every SQL92 pull, so the bit map has no effect"


def _print_topics(topics: Sequence[tuple[str, TopicAdvice]], several: bool) -> None:
    """A line for each broker and topic, and below them the reasons. ``several``: whether there are several brokers."""
    titles = ["broker", "topic", "bit map", "SQL92 groups", "evaluated at store", "reads without", "reads with",
              "bytes saved", "extension", "false pos. predicted", "measured", "best f, n"]  # fmt: skip
    rows = []
    for broker, topic in topics:
        load, bit_map = topic.load, topic.bit_map
        dead = f" + {load.dead_groups:,} dead" if load.dead_groups else ""
        rows.append(
            [
                short(broker), short(topic.topic), "on" if bit_map.use else "off", f"{load.groups:,}{dead}",
                count(bit_map.store_evaluations), count(bit_map.reads_without), count(bit_map.reads_with),
                count(bit_map.saved_bytes), count(bit_map.extension_bytes),
                f"{bit_map.false_positive_rate:.1%}",
                "-" if bit_map.measured_rate is None else f"{bit_map.measured_rate:.1%}",
                "-" if bit_map.best is None else f"{bit_map.best.f}, {bit_map.best.n}",
            ]
        )  # fmt: skip
    print_table_of_brokers(titles, rows, several, left=2)
    for broker, topic in topics:
        where = f"{topic.topic} on {broker}" if several else topic.topic
        print(f"  {printable(where)}: {'on' if topic.bit_map.use else 'off'}: {topic.bit_map.reason}")


def _topics_object(facts: BrokerFacts, topics: Sequence[TopicAdvice]) -> dict[str, Any]:
    """The advice for one broker as in the JSON object that docs/JSON.md describes."""
    topic_objects = [
        {"topic": topic.topic, "load": asdict(topic.load), "bit_map": asdict(topic.bit_map)} for topic in topics
    ]
    return {"bit_map_is_on": facts.broker.calculates_bit_maps, "topics": topic_objects}


if __name__ == "__main__":
    application.run(main)
