"""subscriptions: writes a file for --subscriptions, from broker.log, mqadmin, the dashboard, or a warehouse."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from filtering.counted import counted
from jobs.cli import application, options
from jobs.cli.application import Parser, input_file
from jobs.cli.output import print_data
from schemas.errors import UsageError

if TYPE_CHECKING:
    from answers.facts import BrokerFacts
    from filtering.subscription_data import Subscription
    from filtering.subscriptions.events import ConsumeStart

EXAMPLES = (
    "broker.log > subscription_events.jsonl",
    "cg_paid.txt cg_rich.txt > subscriptions.yaml   # each from: mqadmin consumerConnection -g NAME > NAME.txt",
    "1795237513466/* > subscription_events.jsonl   # the files that mqadmin consumerStatus -g NAME writes",
    "--warehouse /data/mqsieve > subscriptions.yaml   # a list to edit, of the groups that are online",
)


def parser() -> Parser:
    parser = Parser("subscriptions", __doc__, EXAMPLES)
    parser.add_argument(
        "files", nargs="*", type=input_file, metavar="FILE",
        help="broker logs; or output of mqadmin consumerConnection or the dashboard's JSON, one file for each group, "
        "with the group as its name; or what each client runs (mqadmin consumerStatus, or the dashboard's JSON), one "
        "file for each client, with its client id as its name",
    )  # fmt: skip
    options.add_answer(parser, required=False)
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    if bool(args.files) == (args.warehouse is not None):
        raise UsageError("give either files, or --warehouse with a warehouse")
    if args.warehouse is not None:
        _print_list_of(options.facts_of(args))
        return
    from schemas.operator_tools import is_broker_log, is_running_info

    texts = {path: path.read_text(encoding="utf-8", errors="surrogateescape") for path in args.files}
    kinds = {
        _print_events if is_broker_log(text) else _print_heartbeats if is_running_info(text) else _print_snapshot
        for text in texts.values()
    }
    if len(kinds) > 1:
        raise UsageError("give broker logs, consumer connections, or what clients run, not several kinds at once")
    kinds.pop()(texts)


def _print_events(texts: dict[Path, str]) -> None:
    from filtering.subscriptions.events import event_line, in_order
    from schemas.operator_tools import read_broker_log, versions_in_log, versions_of_clients

    logs = {path: read_broker_log(text) for path, text in texts.items()}
    events = in_order(event for log in logs.values() for event in log.events)
    print_data(*map(event_line, events))
    print(counted(len(events), "subscription event"), file=sys.stderr)
    for path, text in texts.items():
        if (shown := versions_in_log(text)) is not None:
            print(f"{path}: RocketMQ {shown.reason}", file=sys.stderr)
        clients = Counter(versions_of_clients(text).values())
        if clients:
            versions = ", ".join(f"{version} ({counted(count, 'group')})" for version, count in sorted(clients.items()))
            print(f"{path}: clients of RocketMQ {versions}; a broker may be older or newer", file=sys.stderr)
    for path, log in logs.items():
        for line in log.incomplete:
            print(f"{path}, line {line}: left out, its SubscriptionData is incomplete, or not UTF-8", file=sys.stderr)


def _print_heartbeats(texts: dict[Path, str]) -> None:
    from filtering.subscriptions.events import Operation, SubscriptionEvent, event_line, in_order
    from schemas.operator_tools import running_info

    events = []
    for path, text in texts.items():
        try:
            info = running_info(text)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None
        client_id = path.name.removesuffix(".txt").removesuffix(".json")
        group = info.group
        if group is None:
            raise UsageError(
                f"{path}: which group is this? The client subscribes to no %RETRY% topic, so it broadcasts, which is "
                "not replayed; leave it out"
            )
        events.append(
            SubscriptionEvent(
                info.started_at, Operation.HEARTBEAT, group, tuple(info.subscriptions), client_id=client_id
            )
        )
    print_data(*map(event_line, in_order(events)))
    groups = len({event.group for event in events})
    print(f"{counted(len(events), 'client')} of {counted(groups, 'group')}", file=sys.stderr)


def _print_snapshot(texts: dict[Path, str]) -> None:
    entries = _entries(texts)
    _print_list(entries)
    print(f"{counted(len(entries), 'subscription')} of {counted(len(texts), 'group')}", file=sys.stderr)


def _print_list(entries: Sequence[Mapping[str, str | int]]) -> None:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Escapes the line breaks that YAML knows besides the line feed."""

        def represent_str(self, data: str) -> yaml.ScalarNode:
            style = '"' if re.search("[\x85\u2028\u2029]", data) else None
            return self.represent_scalar("tag:yaml.org,2002:str", data, style)

    Dumper.add_representer(str, Dumper.represent_str)
    print_data(yaml.dump(entries, Dumper=Dumper, allow_unicode=True, sort_keys=False).rstrip())


def _print_list_of(facts: BrokerFacts) -> None:
    """The subscriptions at the end of the last night of the groups that are online then, without retry topics.

    Clients subscribe to their retry topic by themselves, so a night with the list does not end it.
    """
    from filtering.names import is_retry_topic
    from filtering.subscription_data import new_subscription
    from filtering.subscriptions.events import ConsumeFrom, resets_and_first_starts

    first_events = resets_and_first_starts(facts.events)[1]
    online = [row for row in facts.in_force if row.is_consuming and not is_retry_topic(row.topic)]
    entries = []
    for row in online:
        start = first_events[row.key].consume_from if row.key in first_events else ConsumeFrom.LAST
        subscription = new_subscription(row.topic, row.expression, row.expression_type, 0, row.class_filter_mode)
        entries.append(_entry(row.consumer_group, subscription, start, row.key in facts.broadcasting))
    _print_list(entries)
    groups, all_groups = {row.consumer_group for row in online}, {row.consumer_group for row in facts.in_force}
    left_out = f"; left out, as they are away: {', '.join(sorted(all_groups - groups))}" if all_groups - groups else ""
    print(f"{counted(len(entries), 'subscription')} of {counted(len(groups), 'group')}{left_out}", file=sys.stderr)


def _entries(texts: dict[Path, str]) -> list[dict[str, str | int]]:
    """The entries of a YAML list of subscriptions. Raises UsageError if a text is no consumer connection."""
    from filtering.names import RETRY_TOPIC_PREFIX, is_retry_topic
    from filtering.subscriptions.events import BROADCASTING
    from schemas.operator_tools import consumer_connection

    entries = []
    for path, text in texts.items():
        try:
            connection = consumer_connection(text)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None
        if connection.is_broadcasting:
            print(f"{path.stem}: not replayed: {BROADCASTING}", file=sys.stderr)
        retried = [
            each["topic"].removeprefix(RETRY_TOPIC_PREFIX)
            for each in connection.subscriptions
            if is_retry_topic(each["topic"])
        ]
        if retried and path.stem not in retried:
            print(
                f"{path}: is the group really {path.stem}, as the file is named? Its clients read the retry topic of "
                f"{retried[0]}: name the file {retried[0]}{path.suffix}",
                file=sys.stderr,
            )
        for subscription in connection.subscriptions:
            entries.append(_entry(path.stem, subscription, connection.consume_from, connection.is_broadcasting))
    return entries


def _entry(
    group: str, subscription: Subscription, consume_from: ConsumeStart, is_broadcasting: bool
) -> dict[str, str | int]:
    """An entry of a YAML list of subscriptions."""
    from filtering.subscription_data import SQL92, SUB_ALL
    from filtering.subscriptions.events import ConsumeFrom, consume_from_value

    kind = "sql" if subscription["type"] == SQL92 else "tag"
    entry: dict[str, str | int] = {
        "group": group, "topic": subscription["topic"], kind: subscription["expression"] or SUB_ALL,
    }  # fmt: skip
    if subscription.get("class_filter_mode"):
        entry["class_filter_mode"] = "true"
    if consume_from is not ConsumeFrom.LAST:
        entry["consume_from"] = consume_from_value(consume_from)
    if is_broadcasting:
        entry["message_model"] = "broadcasting"
    return entry


if __name__ == "__main__":
    application.run(main)
