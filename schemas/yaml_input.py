"""Reads YAML from users: only lists, mappings and texts, with limits on size and depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from schemas.errors import UsageError

LARGEST = 64 << 20
"""The greatest length of a document in characters."""
DEEPEST = 100
"""The greatest depth of a document in levels."""
_NESTING = {
    yaml.SequenceStartEvent: 1,
    yaml.MappingStartEvent: 1,
    yaml.SequenceEndEvent: -1,
    yaml.MappingEndEvent: -1,
}
# BaseLoader reads every scalar as a text: a tag 007 stays 007, and no stays no.
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class InvalidYaml(ValueError):
    """A document that cannot be read. ``line`` (from 1) is the line of the problem."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def compose(text: str) -> tuple[Any, yaml.Node | None]:
    """The loader, which constructs values from nodes, and the root node (None if the document is empty).

    Raises InvalidYaml, also for an alias: a few bytes of aliases can stand for gigabytes.
    """
    if len(text) > LARGEST:
        raise InvalidYaml(1, f"longer than {LARGEST:,} characters")
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                raise InvalidYaml(_line(event), "aliases are not supported: write the value out")
            depth += _NESTING.get(type(event), 0)
            if depth > DEEPEST:
                raise InvalidYaml(_line(event), f"nested more than {DEEPEST} levels deep")
        loader = _Loader(text)
        return loader, loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        if error.context == "while scanning an alias":
            raise InvalidYaml(line, 'not YAML: a * without quotes begins an alias; write "*"') from None
        raise InvalidYaml(line, f"not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise InvalidYaml(1, f"not YAML: {error}") from None


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def load(text: str) -> object:
    """The document as lists, dictionaries and texts; None if it is empty. Raises InvalidYaml."""
    loader, node = compose(text)
    try:
        return None if node is None else loader.construct_object(node, deep=True)
    except yaml.YAMLError as error:
        raise InvalidYaml(1, f"not YAML: {error}") from None


def load_file(text: str, file: Path | str) -> object:
    """The document of a file with this text, as :func:`load` does. Raises UsageError with the file and the line."""
    try:
        return load(text)
    except InvalidYaml as error:
        raise UsageError(f"{file}, line {error.line}: {error}") from None
