"""subscriptions: converts broker.log, or output of mqadmin or the dashboard, to a file for --subscriptions."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from filtering.counted import counted
from jobs.cli import application
from jobs.cli.application import Parser, input_file
from schemas.errors import UsageError

EXAMPLES = (
    "broker.log > subscription_events.jsonl",
    "cg_paid.txt cg_rich.txt > subscriptions.yaml   # each from: mqadmin consumerConnection -g NAME > NAME.txt",
    "1795237513466/* > subscription_events.jsonl   # the files that mqadmin consumerStatus -g NAME writes",
)


def parser() -> Parser:
    parser = Parser("subscriptions", __doc__, EXAMPLES)
    parser.add_argument(
        "files", nargs="+", type=input_file, metavar="FILE",
        help="broker logs; or output of mqadmin consumerConnection or the dashboard's JSON, one file for each group, "
        "with the group as its name; or what each client runs (mqadmin consumerStatus, or the dashboard's JSON), one "
        "file for each client, with its client id as its name",
    )  # fmt: skip
    return parser


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    from filtering.subscriptions.operator_tools import is_broker_log, is_running_info

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
    from filtering.subscriptions.operator_tools import read_broker_log, versions_in_log, versions_of_clients
    from jobs.cli.json_lines import print_data

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
    from filtering.subscriptions.operator_tools import running_info
    from jobs.cli.json_lines import print_data

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
    import yaml

    from jobs.cli.json_lines import print_data

    class Dumper(yaml.SafeDumper):
        """Escapes the line breaks that YAML knows besides the line feed."""

        def represent_str(self, data: str) -> yaml.ScalarNode:
            style = '"' if re.search("[\x85\u2028\u2029]", data) else None
            return self.represent_scalar("tag:yaml.org,2002:str", data, style)

    Dumper.add_representer(str, Dumper.represent_str)
    entries = _entries(texts)
    print_data(yaml.dump(entries, Dumper=Dumper, allow_unicode=True, sort_keys=False).rstrip())
    print(f"{counted(len(entries), 'subscription')} of {counted(len(texts), 'group')}", file=sys.stderr)


def _entries(texts: dict[Path, str]) -> list[dict[str, str | None]]:
    """The entries of a YAML list of subscriptions. Raises UsageError if a text is no consumer connection."""
    from filtering.subscription_data import SQL92
    from filtering.subscriptions.events import BROADCASTING, ConsumeFrom
    from filtering.subscriptions.namespace import RETRY_TOPIC_PREFIX
    from filtering.subscriptions.operator_tools import consumer_connection

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
            if each["topic"].startswith(RETRY_TOPIC_PREFIX)
        ]
        if retried and path.stem not in retried:
            print(
                f"{path}: is the group really {path.stem}, as the file is named? Its clients read the retry topic of "
                f"{retried[0]}: name the file {retried[0]}{path.suffix}",
                file=sys.stderr,
            )
        for subscription in connection.subscriptions:
            kind = "sql" if subscription["type"] == SQL92 else "tag"
            entry = {"group": path.stem, "topic": subscription["topic"], kind: subscription["expression"]}
            if subscription.get("class_filter_mode"):
                entry["class_filter_mode"] = "true"
            if connection.consume_from is not ConsumeFrom.LAST:
                entry["consume_from"] = connection.consume_from.value
            if connection.is_broadcasting:
                entry["message_model"] = "broadcasting"
            entries.append(entry)
    return entries


if __name__ == "__main__":
    application.run(main)
