"""Runs nightly, or one of its steps, with the options of a command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from filtering.counted import counted
from jobs.cli import options as shared
from jobs.cli.application import describe
from jobs.cli.brokers_summary import print_brokers
from jobs.cli.exit_code import CheckFailed
from jobs.cli.progress import compile_time, print_compiles, print_end, shown_on_terminal
from jobs.cli.summarized_night import SummarizedNight, summarize
from jobs.cli.summary import print_steps, print_summary
from jobs.cli.without_pandas import allow_pandas
from jobs.night.inputs.broker import broker_of
from jobs.night.inputs.brokers_file import BrokerEntry, read_brokers
from jobs.night.inputs.hooks import FilterHook, read_filter_hooks
from jobs.night.inputs.night_inputs import NightInputs, NightOptions
from jobs.night.inputs.snapshot import StoreSnapshot
from jobs.night.inputs.steps import ALL_STEPS, Step
from jobs.night.inputs.subscription_file import SubscriptionFile, read_subscriptions
from jobs.night.run import NightReport, Run
from schemas.answers.report.attention import errors
from schemas.errors import UsageError
from schemas.ledger_check import read_runs
from schemas.ledger_inputs import FIRST_SNAPSHOT, SUBSCRIPTION_FILE, SUBSCRIPTIONS_FROM, USER
from schemas.messages.bodies import Bodies
from schemas.messages.message_log import files, is_message_log, log_forms
from schemas.rocketmq_store.config_files import contents
from schemas.run_ledger import LedgerEntry
from schemas.storage import Storage, error_text
from schemas.warehouse_folder import check_folder, no_nights

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
        run = Run(warehouse, job, shared.session)
        run.open()
        several = len(entries) > 1
        try:
            for entry in entries:
                for night in _nights(entry, steps, options, hooks):
                    try:
                        report = night.run(run)
                    except Exception as error:
                        if not several:
                            raise
                        error.add_note(entry.name or entry.stores[0].root)
                        failed.append(error)
                        run.open()  # What the failed night has committed must not become part of the next one.
                        break
                    if steps != ALL_STEPS:
                        print_steps(run, report)
                        continue
                    summarized.append(summarize(run, report, checks_messages=options.strict))
                    if not several:
                        print_summary(run, summarized[-1])
        finally:  # After Ctrl-C, too.
            if summarized and several:
                print_brokers(run, summarized)
        shared.register_in_catalog(warehouse)
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(entries)} brokers failed", failed)
    if options.strict:
        _check_attention(summarized, several or len(run.last) > 1)


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


@dataclass(frozen=True)
class _Night:
    """A night on a snapshot of a broker, or one without new messages. ``storage`` is the snapshot, if there is one."""

    entry: BrokerEntry
    storage: Storage | None
    options: NightOptions

    def run(self, run: Run) -> NightReport:
        """Runs the night, and shows its progress."""
        storage, entry = self.storage, self.entry
        message_log = _message_log(storage)
        snapshot = StoreSnapshot(storage) if storage is not None and message_log is None else None
        broker = broker_of(
            entry.config, snapshot, run.last, entry.name, reads_messages=storage is not None, version=entry.version
        )
        subscriptions = entry.read_subscriptions()
        if subscriptions is None and snapshot is not None and Step.REGISTER in self.options.steps:
            subscriptions = self._own_list(snapshot, run.last.get(broker.name))
        with shown_on_terminal(broker.name), compile_time(print_compiles) as compiling:
            report = run.run_night(broker, NightInputs(snapshot, subscriptions, message_log), self.options)
        print_end(report, compiling.seconds)
        return report

    def _own_list(self, snapshot: StoreSnapshot, last: LedgerEntry | None) -> SubscriptionFile | None:
        """The broker's own list of SQL92 subscriptions, or its backup if it is missing or another kind of file.

        None if the user gave the subscriptions of earlier nights: they know more than the list.
        """
        if last is not None and _has_subscriptions_of_user(last) and not self.options.new_epoch:
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
    first = NightOptions(
        Bodies(options.bodies),
        options.new_epoch,
        options.redo_from,
        steps,
        tuple(hooks),
    )
    later = replace(first, new_epoch=False, redo_from=None)
    return [_Night(entry, storage, later if i else first) for i, storage in enumerate(entry.stores or (None,))]
