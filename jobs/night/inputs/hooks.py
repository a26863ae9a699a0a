"""Reads the user's list of filter hooks: code with which clients drop messages that they received.

    - group: cg_paid_orders
      topic: OrderEvents
      predicate: properties['region'] = 'hangzhou'   # Spark SQL over an entry and its message's properties
    - group: cg_all_orders
      topic: OrderEvents
      function: my_hooks:large_orders   # RecordBatch of ENTRY_COLUMNS -> BooleanArray

A hook sees the messages that passed the client's tag check. A message for which it is not true gets the outcome
DROPPED_BY_HOOK. If a group has several hooks on a topic, all of them must be true.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from filtering.delivery.filter_hooks import FunctionHook, Hook
from filtering.subscriptions.events import GroupTopic
from filtering.yaml_input import InvalidYaml, load
from schemas.errors import UsageError

KEYS = ("group", "topic", "predicate", "function")


@dataclass(frozen=True)
class FilterHook:
    """One entry of the file. ``code`` is the SHA-256 of the file with the function, empty for a predicate."""

    consumer_group: str
    topic: str
    predicate: str | None
    function: FunctionHook | None
    code: str = ""

    @property
    def text(self) -> str:
        """The hook as text, for the ledger."""
        action = self.predicate or (self.function and self.function.name, self.code)
        return repr((self.consumer_group, self.topic, action))


def text_of(hooks: Iterable[FilterHook]) -> str:
    """The hooks as text, for the ledger; empty if there are none."""
    return "; ".join(hook.text for hook in hooks)


def read_filter_hooks(file: Path) -> tuple[FilterHook, ...]:
    """The hooks listed in ``file``. Raises UsageError for an entry that is not a hook."""
    try:
        entries = load(file.read_text(encoding="utf-8", errors="replace")) or []
    except InvalidYaml as error:
        raise UsageError(f"{file}, line {error.line}: {error}") from None
    if not isinstance(entries, list):
        raise UsageError(f"{file} is not a list; start each hook with a dash, as in - group: cg_paid")
    return tuple(_hook(entry, f"{file}, hook {number}") for number, entry in enumerate(entries, start=1))


def _hook(entry: object, where: str) -> FilterHook:
    is_hook = isinstance(entry, dict) and all(key in KEYS and isinstance(text, str) for key, text in entry.items())
    if not isinstance(entry, dict) or not is_hook or ("predicate" in entry) == ("function" in entry):
        raise UsageError(f"{where}: a hook has group:, topic: and either predicate: or function:")
    for key in ("group", "topic"):
        if key not in entry:
            raise UsageError(f"{where}: {key}: is missing")
    if "predicate" in entry:
        return FilterHook(entry["group"], entry["topic"], entry["predicate"], None)
    module_name, _, name = entry["function"].partition(":")
    try:
        module = importlib.import_module(module_name)
        function = getattr(module, name)
        code = Path(inspect.getfile(module)).read_bytes()
    except Exception as error:  # importing runs the user's code
        raise UsageError(
            f"{where}: no function {entry['function']}: {error}; write module:name, and add its folder to PYTHONPATH"
        ) from None
    if not callable(function):
        raise UsageError(f"{where}: {entry['function']} is not a function")
    hook = FunctionHook(entry["function"], function)
    return FilterHook(entry["group"], entry["topic"], None, hook, hashlib.sha256(code).hexdigest())


def check_groups(hooks: Iterable[FilterHook], known: Iterable[GroupTopic]) -> None:
    """Raises UsageError for a hook whose group and topic are not among the subscribed ones, ``known``."""
    subscribed = set(known)
    for hook in hooks:
        if (hook.consumer_group, hook.topic) not in subscribed:
            raise UsageError(
                f"filter hook of {hook.consumer_group} on {hook.topic}: the group has no subscription to the topic; "
                "export subscriptions lists them"
            )


def hooks_by_group(hooks: Sequence[FilterHook]) -> Mapping[GroupTopic, Sequence[Hook]]:
    """The hooks on the rows of :func:`jobs.night.tasks.hooked_task.with_answers`, by group and topic."""
    answers = {key: itemgetter(name) for key, name in answer_names(hooks).items()}
    by_group: dict[GroupTopic, list[Hook]] = defaultdict(list)
    for hook in hooks:
        answer = hook.function if hook.predicate is None else answers[hook.topic, hook.predicate]
        if answer is not None:
            by_group[hook.consumer_group, hook.topic].append(answer)
    return by_group


def answer_names(hooks: Iterable[FilterHook]) -> dict[GroupTopic, str]:
    """The name of the column with the answers of each predicate, by topic and predicate."""
    distinct = dict.fromkeys((hook.topic, hook.predicate) for hook in hooks if hook.predicate is not None)
    return {key: f"hook_{i}" for i, key in enumerate(distinct)}
