"""Where the seconds of a night go: the time of some functions, each without that of the others that it calls."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any


class Steps:
    """``seconds`` by step, since :meth:`reset`."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    def reset(self) -> None:
        self.seconds.clear()

    def watch(self, owner: Any, name: str, step: str | Callable[..., str]) -> None:
        """Counts the calls of a function or method of ``owner`` to a step. A callable names it by the arguments."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            begin = perf_counter()
            self._inner.append(0.0)
            try:
                return function(*arguments, **named)
            finally:
                taken = perf_counter() - begin
                self.seconds[step if isinstance(step, str) else step(*arguments)] += taken - self._inner.pop()
                if self._inner:
                    self._inner[-1] += taken

        setattr(owner, name, timed)


def night_steps() -> Steps:
    """Watches the steps of a night in this process. Tasks must run one after another in it."""
    from filtering.delivery.topic_filters import TopicFilters
    from jobs.cli import night_job, options, session
    from jobs.night import night, run, tasks
    from jobs.night.commit import Changes
    from jobs.night.past import BrokerState
    from schemas.delta.table import DataFileWriter
    from schemas.messages.commitlog_rows import CommitlogRows

    steps = Steps()
    for owner, name, step in (
        (options, "subscriptions_of", "read subscriptions"),
        (run, "plan_log", "plan"),
        (run, "read_state", "plan"),
        (run, "night_events", "subscriptions"),
        (BrokerState, "history", "subscriptions"),
        (night, "plan_night", "plan"),
        (TopicFilters, "__init__", "compile filters"),
        (session, "spark_session", "start Spark"),
        (night, "read_ranges", "tasks"),
        (CommitlogRows, "rows", "tasks: decode"),
        (TopicFilters, "run", "tasks: filter"),
        (tasks, "block_matches", "tasks: blocks"),
        (night, "progress_rows", "progress"),
        (run, "compact", "compact"),
        (Changes, "commit", "commit"),
        (night_job, "summarize", "summary"),
        (night_job, "print_summary", "summary"),
    ):
        steps.watch(owner, name, step)
    steps.watch(night, "read_range", "tasks: find records, sort")
    steps.watch(DataFileWriter, "write", lambda writer, _: f"write {writer._table.name}")
    return steps
