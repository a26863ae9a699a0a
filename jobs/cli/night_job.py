"""Runs nightly, or one of its steps, with the options of a command line: progress, the nights, and the summary at the
end."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from heapq import nlargest
from itertools import groupby
from pathlib import Path

from answers.attention import errors
from answers.facts import BrokerFacts, open_facts
from answers.rendering import expression_line, short
from answers.report import (
    Counts,
    GroupCounts,
    GroupPops,
    NightSummary,
    messages_without_entry,
    night_summary,
    total,
)
from filtering.broker_config import BrokerConfig
from filtering.counted import counted
from filtering.frozen import frozen
from filtering.kernels.compile import LISTENERS, CompileListener
from filtering.subscriptions.events import GroupTopic, Operation
from jobs.cli import options as shared
from jobs.cli.application import CheckFailed, allow_pandas, describe
from jobs.cli.output import BROKERS_NAMED, count, print_by_line, print_table
from jobs.cli.prometheus import night_metrics, write
from jobs.night import ALL_STEPS, Step
from jobs.night.inputs import (
    BrokerEntry,
    FilterHook,
    StoreSnapshot,
    SubscriptionFile,
    broker_of,
    read_brokers,
    read_filter_hooks,
    read_subscriptions,
)
from jobs.night.night_inputs import NightInputs
from jobs.night.run import NightReport, NightRunner
from schemas.commitlog import COMMITLOG
from schemas.deliveries import DELIVERIES
from schemas.delta.table_rows import one_of
from schemas.errors import UsageError, option, printable
from schemas.ledger_check import check_folder, no_nights, read_runs
from schemas.messages.commitlog_rows import Bodies
from schemas.messages.message_log import files, is_message_log, log_forms
from schemas.recording import recorded_brokers
from schemas.rocketmq_store.config_files import contents
from schemas.rocketmq_store.recovery import recovery
from schemas.rocketmq_store.segments import is_mapped_file
from schemas.run_ledger import FIRST_SNAPSHOT, SUBSCRIPTION_FILE, SUBSCRIPTIONS_FROM, USER, LedgerEntry
from schemas.spark_tasks import place_text
from schemas.storage import Storage, error_text
from schemas.subscriptions import SUBSCRIPTIONS
from schemas.tables import CONSUMEQUEUE, MEANINGS, QUARANTINE

# Progress on stderr: the beginning on a terminal only, the end in a log, too.


CLEARED_LINE = "\r\033[K"


@contextmanager
def shown_on_terminal(broker_name: str) -> Iterator[None]:
    """Shows the name of a broker while its night runs."""
    if os.environ.get("MQSIEVE_TERMINAL") != "1":
        yield
        return
    print(f"{CLEARED_LINE}{printable(broker_name)} …", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(CLEARED_LINE, end="", file=sys.stderr, flush=True)


class Compilation(CompileListener):
    """The ``seconds`` in which some thread compiled functions. Loading them from the cache is not counted."""

    def __init__(self, begins: Callable[[], None]) -> None:
        self.seconds = 0.0
        self._begins = begins
        self._began = 0.0
        self._running = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        with self._lock:
            if not self._running:
                if not self.seconds:
                    self._begins()
                self._began = time.monotonic()
            self._running += 1

    def end(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                self.seconds += time.monotonic() - self._began


@contextmanager
def compile_time(begins: Callable[[], None]) -> Iterator[Compilation]:
    """Measures how long functions are compiled in a ``with`` block. ``begins`` is called before the first one is."""
    listener = Compilation(begins)
    LISTENERS.append(listener)
    try:
        yield listener
    finally:
        LISTENERS.remove(listener)


def print_compiles() -> None:
    """Prints that the first use on a machine takes longer, or each use if no folder keeps what is compiled."""
    from filtering.kernels.dispatcher import is_cached

    clear = CLEARED_LINE if os.environ.get("MQSIEVE_TERMINAL") == "1" else ""
    how_often = "once: up to a minute"
    if not is_cached():
        how_often = "each time, up to a minute: set NUMBA_CACHE_DIR to a folder that you may write to"
    print(f"{clear}mqsieve compiles its loops for this processor, {how_often}", file=sys.stderr, flush=True)


def print_end(report: NightReport, compiling: float) -> None:
    """Prints one line: the time, and the number of messages and their rate if any were read.

    ``compiling``: the seconds of the night in which loops were compiled. They are not part of the rate.
    """
    messages = report.rows.get("commitlog", 0)
    done = "done" if report.entry else "nothing new"
    if messages:
        done = f"{counted(messages, 'message')}, {messages / max(report.seconds - compiling, 0.001):,.0f}/s"
    took = f"{report.seconds:.1f} s" + (f", of which {compiling:.1f} s to compile" if compiling >= 0.05 else "")
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    print(f"{now} {printable(report.broker.name)}: {done} ({took})", file=sys.stderr)


# What the summary at the end of a night says besides the counts of its groups.


@frozen
class SummarizedNight:
    """A night that has ended (without outcome and history), how a broker would recover, a ``remark`` on its rows."""

    report: NightReport
    summary: NightSummary
    recovery: Sequence[str]
    remark: str

    @property
    def broker(self) -> str:
        return self.report.broker.name

    @property
    def counts(self) -> Counts:
        """The sums of the counts of all groups; zeros if nothing was new."""
        return total(group.counts for group in self.summary.groups if self.report.entry is not None)

    @property
    def lines(self) -> list[str]:
        """What needs attention, the worst first, where new groups began, and what else looks wrong."""
        summary = self.summary
        attention = (problem.text for problem in summary.attention)
        return [*attention, *summary.started, *self.recovery, *summary.notes]


def summarize(runner: NightRunner, report: NightReport, checks_messages: bool) -> SummarizedNight:
    """``checks_messages``: as in :func:`night_summary`."""
    replayed = report.events.events, report.history
    facts = replace(open_facts(runner.warehouse, report.broker.name, runner.expressions), replayed=replayed)
    summary = night_summary(facts, runner.session, checks_messages)
    recovered = _recovery_lines(facts, report) if report.outcome is not None else []
    remark = _without_entry(facts, report)
    # The outcome has all pull windows and rows: too much to keep for each of many brokers.
    return SummarizedNight(replace(report, outcome=None, history=()), summary, recovered, remark)


def _without_entry(facts: BrokerFacts, report: NightReport) -> str:
    """Why the night added fewer rows to consumequeue than to commitlog; empty if it did not."""
    in_lmqs = report.outcome.result.in_lmqs if report.outcome is not None else 0
    entries = report.rows.get(CONSUMEQUEUE.name, 0) - in_lmqs
    if report.entry is None or report.rows.get(COMMITLOG.name, 0) <= entries:
        return ""
    without = messages_without_entry(facts, report.entry.run)
    messages = counted(
        without, "prepared or rolled-back transaction message has", "prepared or rolled-back transaction messages have"
    )
    return f"\n  {messages} no entry in consumequeue" if without else ""


def _recovery_lines(facts: BrokerFacts, report: NightReport) -> list[str]:
    """How the broker itself would recover the store, if it is damaged."""
    damaged = report.outcome.result.damaged_bodies if report.outcome else 0
    snapshot = report.inputs.snapshot
    if snapshot is None or not (damaged or (report.entry is not None and _is_log_damaged(facts, report.entry.run))):
        return []
    config = report.broker.config
    size = config.mapped_file_size_commit_log if report.broker.is_given else None
    recovered = recovery(snapshot.storage, size)
    if recovered.refused is not None:
        return [f"the broker itself would not start on this store: {recovered.refused}"]
    ends = {"a clean shutdown": recovered.end_after_clean_shutdown or 0, "a crash": recovered.end_after_crash or 0}
    return [
        f"the broker itself, restarted after {after}, would end its log at offset {end:,}"
        for after, end in ends.items()
    ]


def _is_log_damaged(facts: BrokerFacts, run: str) -> bool:
    """Whether a run quarantined bytes of the log; others are lines of text files."""
    names = facts.rows(QUARANTINE, ["source_file"], [one_of("run", [run])])["source_file"].to_pylist()
    return any(map(is_mapped_file, names))


# Prints the summary at the end of a night.


COLUMNS = (
    ("scanned", "scanned"),
    ("passed_stage1", "stage 1"),
    ("passed_stage2", "stage 2"),
    ("delivered", "delivered"),
    ("proven", "proven"),
    ("client_drops", "client drops"),
    ("dropped_by_hook", "hook drops"),
    ("bit_map_false_positives", "false pos."),
    ("evaluation_errors", "errors"),
    ("uncertain", "uncertain"),
    ("repeated", "repeated"),
    ("lost", "lost"),
    ("pending", "pending"),
)
POP_COLUMNS = {
    "popped": "popped",
    "redelivered": "redelivered",
    "attempts": "attempts",
    "dropped_by_tags": "dropped by tags",
    "dead": "dead",
    "acknowledged": "acknowledged",
}
ALWAYS_SHOWN = frozenset({"scanned", "passed_stage1", "passed_stage2", "delivered", "pending"})
WIDTH = 118
LONGEST_FILTER = 400
MOST_GROUPS = 50
"""The groups of a topic that a summary shows: those with the most messages to pull, then with the most deliveries."""
WRITTEN_BY_JOB = {"ingest": COMMITLOG.name, "register": SUBSCRIPTIONS.name, "dispatch": CONSUMEQUEUE.name}
"""The table that a step before deliver writes."""

READS_SUBSCRIPTIONS = ("nightly", "register")


def print_summary(runner: NightRunner, night: SummarizedNight) -> None:
    """Prints the counts of each group, what needs attention, and where the tables are."""
    report, summary = night.report, night.summary
    if report.entry is None and summary.groups:
        print(f"Nothing was new: the counts are those of run {summary.run}.\n")
    _print_groups(summary.groups)
    _print_pops(summary.pops)
    for line in night.lines:
        print(printable(line))
    if summary.notes:
        print_lint(runner, [report.broker.name], len(runner.last) > 1)
    if night.lines:
        print()
    print_steps(runner, report, night.remark)


def print_lint(runner: NightRunner, brokers: Iterable[str], one_of_several: bool) -> None:
    """Prints the command that says more about the subscriptions of each broker."""
    print("lint says why, and what real messages show:")
    for broker in brokers:
        which = f" {option('broker', broker)}" if one_of_several else ""
        print(f"  {runner.warehouse.command('lint')}{which}")


def print_steps(runner: NightRunner, report: NightReport, remark: str = "") -> None:
    """Prints the broker's switches, the number of rows written with a remark on it, and where the tables are."""
    config = report.broker.config
    print(f"broker {short(report.broker.name)}: {switches(config)}")
    print(f"  ({printable(report.broker.source)})")
    print(f"  RocketMQ {printable(report.broker.version_text)}")
    # The summary of a whole night has those of broker.misread, which are remarks, among what needs attention.
    misread = () if runner.job == "nightly" else report.broker.misread
    for line in (*misread, *report.broker.ignored):
        print(f"  {printable(line)}")
    if runner.job in READS_SUBSCRIPTIONS:
        print(f"  subscriptions: {printable(_subscriptions(report))}")
    if report.entry is None:
        print(f"There was nothing new: no table changed ({report.seconds:.1f} s).")
    else:
        added = ", ".join(f"{rows:,} in {table}" for table, rows in report.rows.items()) or "none"
        print(f"  {report.seconds:.1f} s {place_text(report.in_spark, report.workers)}")
        print(f"  rows added: {added}{remark}")
    location, table = printable(runner.warehouse.location), WRITTEN_BY_JOB.get(runner.job, DELIVERIES)
    print(f"The tables are in {location}; to write one as JSON lines:")
    print(f"  {runner.warehouse.command(f'export {table}')} --output {table}.jsonl")


def switches(config: BrokerConfig) -> str:
    """The switches that decide how a broker filters."""
    bit_map = "on" if config.calculates_bit_maps else "off"
    sql92 = "on" if config.enable_property_filter else "off"
    return f"property filter {sql92}, filter bit map {bit_map}"


def _subscriptions(report: NightReport) -> str:
    """Where the subscriptions came from, and what changed."""
    file, events = report.inputs.subscriptions, report.events
    if file is None:
        return "no --subscriptions: those of earlier runs" if events.events else "none: no run had --subscriptions"
    source = "the store's own list of SQL92 subscriptions" if file.is_in_store else ", ".join(file.rejected)
    if not file.events.entries:
        return f"{source}, from which nothing could be read" if file.rejected_lines else f"{source}, without an entry"
    if file.events.is_snapshot and events.new:
        ended = sum(event.operation is Operation.UNREGISTER for event in events.new)
        return f"{source}, {len(events.new) - ended:,} began or changed, {ended:,} ended"
    counts = {"new": len(events.new), "withdrawn": events.retracted}
    changes = [counted(count, f"{kind} event") for kind, count in counts.items() if count]
    return f"{source}, {' and '.join(changes) or 'without changes'}"


def _print_groups(groups: Sequence[GroupCounts]) -> None:
    if not groups:
        return
    columns = shown_columns([group.counts for group in groups])
    print_legend(columns)
    for topic, each in groupby(groups, key=lambda group: group.topic):
        print(f"\n{short(topic)}")
        of_topic = list(each)
        largest = nlargest(MOST_GROUPS, of_topic, lambda group: (group.counts["pending"], group.counts["delivered"]))
        topic_groups = sorted(largest, key=lambda group: group.consumer_group)
        rows = [
            [
                short(group.consumer_group),
                *(count_cell(name, group.counts[name], group.delivered_before) for name in columns),
                short(expression_line(group.expression), LONGEST_FILTER),
            ]
            for group in topic_groups
        ]
        titles = ["group", *columns.values(), "filter"]
        print_table(titles, rows, indent="  ", last_is_text=True)
        if more := len(of_topic) - len(rows):
            print(f"  … and {more:,} more groups; the table delivery_stats has all")
    print()


def _print_pops(pops: Mapping[GroupTopic, GroupPops]) -> None:
    """Prints what groups popped. A retry topic is a topic of its own."""
    if not pops:
        return
    print("popped: how often a message was handed out, of which again: redelivered · acknowledged: up to now")
    print("median, 99 %: how long after the pop those that are acknowledged were")
    titles = ["group", "topic", *POP_COLUMNS.values(), "median", "99 %"]
    rows = [
        [
            short(group),
            short(topic),
            *(count(getattr(each, name)) for name in POP_COLUMNS),
            *("-" if ms is None else f"{ms:,} ms" for ms in (each.median_ms, each.p99_ms)),
        ]
        for (group, topic), each in sorted(pops.items())
    ]
    print_table(titles, rows, indent="  ", left=2)
    print()


def shown_columns(counts: Sequence[Mapping[str, int]]) -> dict[str, str]:
    """The columns to show, and their titles: some of them only if a row of counts has more than 0."""
    return {name: title for name, title in COLUMNS if name in ALWAYS_SHOWN or any(each.get(name) for each in counts)}


def count_cell(name: str, now: int, delivered_before: int | None) -> str:
    """A cell of the column ``name``. ``delivered_before``: the deliveries of the night before; None: there was none."""
    if name == "delivered" and delivered_before is not None and delivered_before != now:
        return f"{delivered_before:,} → {now:,}"
    return count(now)


def print_legend(columns: Mapping[str, str]) -> None:
    """Prints what the columns mean. ``columns``: their titles, by name."""
    line = ""
    for name, title in columns.items():
        part = f"{title}: {MEANINGS[name]}{' (before → now)' if name == 'delivered' else ''}"
        if line and len(line) + len(part) + 3 > WIDTH:
            print(line)
            line = ""
        line = f"{line} · {part}" if line else part
    print(line)


# Prints the summary of the nights of several brokers: a line for each, and what needs attention.


def print_brokers(runner: NightRunner, nights: Sequence[SummarizedNight]) -> None:
    """Prints the counts of each broker, what needs attention, and where the tables are."""
    _print_counts(nights)
    lines = [line for night in nights for line in _lines(night)]
    print_by_line(lines)
    if noted := list(dict.fromkeys(night.broker for night in nights if night.summary.notes)):
        print_lint(runner, noted[:BROKERS_NAMED], one_of_several=True)
        if len(noted) > BROKERS_NAMED:
            print(f"  and {counted(len(noted) - BROKERS_NAMED, 'more broker')}")
    if lines or noted:
        print()
    print(f"The tables are in {printable(runner.warehouse.location)}; the groups of each broker are in the report:")
    print(f"  {runner.warehouse.command('report')} --output night.html")


def _print_counts(nights: Sequence[SummarizedNight]) -> None:
    """A line for each night: the messages that it added, and the sums of the counts of its groups."""
    sums = [night.counts for night in nights]
    columns = shown_columns(sums)
    rows = [
        [
            short(night.broker),
            count(night.report.rows.get(COMMITLOG.name, 0)),
            *(count_cell(name, counts[name], _delivered_before(night)) for name in columns),
        ]
        for night, counts in zip(nights, sums, strict=True)
    ]
    print_legend(columns)
    print()
    print_table(("broker", "messages", *columns.values()), rows)
    print()


def _delivered_before(night: SummarizedNight) -> int | None:
    """The deliveries of the night before, None if there was none."""
    before = [group.delivered_before for group in night.summary.groups if group.delivered_before is not None]
    return sum(before) if before and night.report.entry is not None else None


def _lines(night: SummarizedNight) -> Iterable[tuple[str, str]]:
    """The name of the broker, and a line about its night."""
    broker, lines = night.report.broker, list(night.lines)
    if not broker.is_given:
        lines.append(f"{switches(broker.config)} ({broker.source})")
    lines.append(f"RocketMQ {broker.version_text}")
    return [(broker.name, line) for line in lines]


NOT_WATCHED_FOR = 60_000
"""ms: how much older than a copy of the store a recording may be before a night says so."""
OWN_LIST = "config/consumerFilter.json"


def run_job(job: str, steps: frozenset[Step], options: argparse.Namespace) -> None:
    """Runs the steps for each broker, and prints the summary."""
    hooks: Sequence[FilterHook] = ()
    if options.filter_hooks is not None:
        allow_pandas()
        hooks = read_filter_hooks(options.filter_hooks)
    entries = _entries(options, job)
    warehouse = shared.warehouse_of(options.warehouse)
    check_folder(warehouse)
    if not steps & {Step.INGEST, Step.REGISTER} and not read_runs(warehouse):
        raise no_nights(warehouse)
    failed: list[Exception] = []
    summarized: list[SummarizedNight] = []
    with warehouse.writing():
        runner = NightRunner(warehouse, job, shared.session)
        runner.open()
        several = len(entries) > 1
        try:
            for entry in entries:
                for night in _nights(entry, steps, options, hooks):
                    if summarized or failed:
                        gc.collect(0)  # of a night, some MiB: PyArrow's metadata of files is in cycles
                    try:
                        report = night.run(runner)
                    except Exception as error:
                        if not several:
                            raise
                        error.add_note(entry.name or entry.stores[0].root)
                        failed.append(error)
                        runner.open()  # What the failed night has committed must not become part of the next one.
                        break
                    if steps != ALL_STEPS:
                        print_steps(runner, report)
                        continue
                    summarized.append(summarize(runner, report, checks_messages=options.strict))
                    if not several:
                        print_summary(runner, summarized[-1])
        finally:  # After Ctrl-C, too.
            if summarized and several:
                print_brokers(runner, summarized)
        shared.register_in_catalog(warehouse)
        if options.metrics is not None and not failed:
            write(options.metrics, night_metrics(runner, summarized))
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(entries)} brokers failed", failed)
    if options.strict:
        _check_attention(summarized, several or len(runner.last) > 1)


def _check_attention(summarized: Sequence[SummarizedNight], several: bool) -> None:
    """Raises CheckFailed if a condition holds that is an error. It names the broker if there are several."""
    lines = [
        f"{night.broker}: {problem.text}" if several else problem.text
        for night in summarized
        for problem in errors(night.summary.attention)
    ]
    if lines:
        things = counted(len(lines), "thing needs", "things need")
        raise CheckFailed(f"{things} attention, the first: {lines[0]}")


def _entries(options: argparse.Namespace, job: str) -> list[BrokerEntry]:
    """The brokers of a run: those of --brokers, or the one that the other options describe."""
    file: Path | None = options.brokers
    stores = [_store_of(text) for text in options.store or ()]
    subscriptions = shared.subscriptions_of(options.subscriptions)
    if options.recorded is not None:
        return [_recorded_entry(options, stores)]
    if file is None:
        if job == "nightly" and not stores:
            raise UsageError("--store is missing: give the broker's store folder, or --brokers with a list of brokers")
        return [
            BrokerEntry(None, tuple(stores), options.broker_config, subscriptions, version=options.rocketmq_version)
        ]
    if stores or options.broker_config or options.rocketmq_version:
        raise UsageError(
            "--brokers already names stores, configurations and versions: leave out --store, --broker-config and "
            "--rocketmq-version"
        )
    return read_brokers(file, subscriptions)


def _recorded_entry(options: argparse.Namespace, stores: Sequence[Storage]) -> BrokerEntry:
    """The broker of --store, with what --recorded has of it, and --subscriptions of what it has not."""
    if options.brokers or options.broker_config or options.rocketmq_version:
        raise UsageError(
            "--recorded has the configuration and the version: leave out --broker-config, --rocketmq-version and "
            "--brokers"
        )
    if not stores or any(_message_log(store) is not None for store in stores):
        raise UsageError("--recorded needs --store with a copy of the broker's store folder")
    brokers = recorded_brokers(options.recorded)
    in_store = StoreSnapshot(stores[0]).broker_name
    if in_store is None and len(brokers) == 1:
        (in_store,) = brokers
    if in_store not in brokers:
        whose = "its topics.json does not say of which broker it is" if in_store is None else f"it is of {in_store}"
        raise UsageError(f"{stores[0].root}: {whose}, and {options.recorded} has {', '.join(brokers)}")
    broker = brokers[in_store]
    read = shared.subscriptions_of([broker.events, *(options.subscriptions or ())])
    assert read is not None
    recorded = replace(read, watched_to=broker.until)
    taken_at = StoreSnapshot(stores[-1]).taken_at
    if taken_at > broker.until + NOT_WATCHED_FOR:
        gaps = (*recorded.events.not_watched, (broker.until, taken_at))
        recorded = replace(recorded, events=replace(recorded.events, not_watched=gaps))
    return BrokerEntry(in_store, tuple(stores), broker.config, recorded, version=broker.version)


def _store_of(text: str) -> Storage:
    """The storage that --store names. Raises UsageError if it cannot be read."""
    storage = Storage.at(text)
    message_log = _message_log(storage)
    try:
        if message_log is not None:
            log_forms(files(message_log))
        elif storage.is_local and Path(storage.root).is_file():
            raise UsageError(
                f"{storage.root} is a file; give a broker's store folder, or a message log that ends in .jsonl or "
                ".parquet"
            )
        else:
            StoreSnapshot(storage).check()
    except OSError as error:
        reason = describe(error) if storage.is_local else error_text(error)
        raise UsageError(f"--store: {reason}") from None
    return storage


def _message_log(storage: Storage | None) -> Path | None:
    """The message log that --store names; None if it is a broker's store, or was not given."""
    local = Path(storage.root) if storage is not None and storage.is_local else None
    return local if local is not None and is_message_log(local) else None


@frozen
class _Night:
    """A night on a snapshot of a broker, or one without new messages. ``storage`` is the snapshot, if there is one.

    ``new_epoch`` and ``redo_from`` are options of the first night only.
    """

    entry: BrokerEntry
    storage: Storage | None
    steps: frozenset[Step]
    hooks: Sequence[FilterHook]
    bodies: Bodies
    new_epoch: bool
    redo_from: int | None

    def run(self, runner: NightRunner) -> NightReport:
        """Runs the night, and shows its progress."""
        storage, entry = self.storage, self.entry
        message_log = _message_log(storage)
        snapshot = StoreSnapshot(storage) if storage is not None and message_log is None else None
        broker = broker_of(
            entry.config, snapshot, runner.last, entry.name, reads_messages=storage is not None, version=entry.version
        )
        subscriptions = entry.read_subscriptions()
        if subscriptions is None and snapshot is not None and Step.REGISTER in self.steps:
            subscriptions = self._own_list(snapshot, runner.last.get(broker.name))
        inputs = NightInputs(
            broker, snapshot, message_log, subscriptions, self.bodies, self.new_epoch, self.redo_from, self.steps,
            self.hooks,
        )  # fmt: skip
        with shown_on_terminal(broker.name), compile_time(print_compiles) as compiling:
            report = runner.run_night(inputs)
        print_end(report, compiling.seconds)
        return report

    def _own_list(self, snapshot: StoreSnapshot, last: LedgerEntry | None) -> SubscriptionFile | None:
        """The broker's own list of SQL92 subscriptions, or its backup if it is missing or another kind of file.

        None if the user gave the subscriptions of earlier nights: they know more than the list.
        """
        if last is not None and _has_subscriptions_of_user(last) and not self.new_epoch:
            return None
        damaged: SubscriptionFile | None = None
        for name, content in contents(snapshot.storage, OWN_LIST):
            file = replace(read_subscriptions(name.removeprefix("config/"), content), is_in_store=True)
            if file.filters_only:
                return file
            damaged = damaged or file
        return damaged


def _has_subscriptions_of_user(last: LedgerEntry) -> bool:
    """Whether a user gave the subscriptions. Of mqsieve before 0.2, only a history of events shows it."""
    if SUBSCRIPTIONS_FROM in last.inputs:
        return last.inputs[SUBSCRIPTIONS_FROM] == USER
    return SUBSCRIPTION_FILE in last.inputs and FIRST_SNAPSHOT not in last.inputs


def _nights(
    entry: BrokerEntry, steps: frozenset[Step], options: argparse.Namespace, hooks: Sequence[FilterHook]
) -> list[_Night]:
    """A night for each snapshot of one broker, in order, or one night without new messages if there is none."""
    first, *later = entry.stores or (None,)
    night = _Night(entry, first, steps, hooks, Bodies(options.bodies), options.new_epoch, options.redo_from)
    return [night, *(replace(night, storage=storage, new_epoch=False, redo_from=None) for storage in later)]
