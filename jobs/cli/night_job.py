"""Runs nightly, or one of its steps, with the options of a command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jobs.cli import options as shared
from jobs.cli.exit_code import CheckFailed
from jobs.cli.progress import Progress
from jobs.cli.summary import print_steps, print_summary
from jobs.cli.without_pandas import allow_pandas
from jobs.night.broker import broker_of
from jobs.night.brokers_file import BrokerEntry, read_brokers
from jobs.night.hooks import FilterHook, read_filter_hooks
from jobs.night.night_inputs import NightInputs, NightOptions
from jobs.night.run import NightReport, Run
from jobs.night.snapshot import StoreSnapshot
from jobs.night.stages import ALL_STAGES, Stage
from jobs.night.subscription_file import SubscriptionFile, read_subscriptions
from schemas.errors import UsageError
from schemas.ledger_check import read_nights
from schemas.messages.bodies import Bodies
from schemas.messages.message_log import is_message_log
from schemas.warehouse_folder import check_folder, no_nights


def run_job(job: str, stages: frozenset[Stage], options: argparse.Namespace) -> None:
    """Runs the stages for each broker, and prints the summary."""
    hooks: Sequence[FilterHook] = ()
    if getattr(options, "filter_hooks", None) is not None:
        allow_pandas()
        hooks = read_filter_hooks(options.filter_hooks)
    entries = _entries(options, job)
    warehouse = shared.warehouse_of(options.warehouse)
    check_folder(warehouse)
    if not stages & {Stage.INGEST, Stage.REGISTER} and not read_nights(warehouse):
        raise no_nights(warehouse)
    failed: list[Exception] = []
    attention: list[str] = []
    with warehouse.writing():
        run = Run(warehouse, job, shared.session_of())
        run.open()
        for entry in entries:
            try:
                reports = _nights(run, entry, stages, options, hooks)
            except Exception as error:
                if len(entries) == 1:
                    raise
                error.add_note(entry.name or entry.stores[0].root)
                failed.append(error)
                run.open()  # What the failed night has committed must not become part of the next one.
                continue
            if stages == ALL_STAGES:
                attention += print_summary(run, reports[-1])
            else:
                print_steps(run, reports[-1])
        shared.register_in_catalog(warehouse)
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(entries)} brokers failed", failed)
    if attention and getattr(options, "strict", False):
        raise CheckFailed(f"{len(attention)} things need attention, the first: {attention[0]}")


def _entries(options: argparse.Namespace, job: str) -> list[BrokerEntry]:
    """The brokers of a run: those of --brokers, or the one that the other options describe."""
    file: Path | None = getattr(options, "brokers", None)
    stores = [shared.store_of(text) for text in getattr(options, "store", None) or ()]
    subscriptions = shared.subscriptions_of(getattr(options, "subscriptions", None))
    if file is None:
        if job == "nightly" and not stores:
            raise UsageError("--store is missing: give the broker's store folder, or --brokers with a list of brokers")
        return [BrokerEntry(None, tuple(stores), options.broker_config, subscriptions)]
    if stores or options.broker_config:
        raise UsageError("--brokers already names stores and configurations: leave out --store and --broker-config")
    return read_brokers(file, subscriptions)


def _nights(
    run: Run,
    entry: BrokerEntry,
    stages: frozenset[Stage],
    options: argparse.Namespace,
    hooks: Sequence[FilterHook],
) -> list[NightReport]:
    """Runs a night for each snapshot of one broker, in order, or one night without new messages if there is none."""
    chosen = NightOptions(
        Bodies(getattr(options, "bodies", Bodies.KEEP.value)),
        getattr(options, "new_epoch", False),
        getattr(options, "redo_from", None),
        stages,
        tuple(hooks),
    )
    reports = []
    for i, storage in enumerate(entry.stores or (None,)):
        is_log = storage is not None and storage.is_local and is_message_log(Path(storage.root))
        snapshot = StoreSnapshot(storage) if storage is not None and not is_log else None
        broker = broker_of(entry.config, snapshot, run.last, entry.name, reads_messages=storage is not None)
        message_log = Path(storage.root) if storage is not None and is_log else None
        subscriptions = entry.subscriptions
        if subscriptions is None and snapshot is not None and Stage.REGISTER in stages:
            subscriptions = _subscriptions_in_store(snapshot)
        options_of_night = chosen if i == 0 else replace(chosen, new_epoch=False, redo_from=None)
        with Progress(broker.name) as progress:
            inputs = NightInputs(snapshot, subscriptions, message_log)
            reports.append(run.run_night(broker, inputs, options_of_night))
            progress.end(reports[-1])
    return reports


def _subscriptions_in_store(snapshot: StoreSnapshot) -> SubscriptionFile | None:
    """The broker's own list of SQL92 subscriptions."""
    content = snapshot.consumer_filter
    return None if content is None else read_subscriptions("consumerFilter.json", content)
