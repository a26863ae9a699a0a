"""The executor that evaluates predicates on 64 messages at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filtering.matcher import leaves, packed_bits
from filtering.matcher.axes import TextAxis
from filtering.matcher.column import Column
from filtering.matcher.columns import columns
from filtering.matcher.kernels import kernels
from filtering.matcher.program import compile_program
from filtering.matcher.text_lists import TextLists
from filtering.matcher.text_search import SearchLeaf, TextSearch
from filtering.predicate import Predicate, PropertyPairLeaf, TextIn


@dataclass(frozen=True, eq=False)
class Matches:
    """The matches of n predicates among ``rows`` messages. ``bits``: packed bits, shape (predicates, words)."""

    rows: int
    bits: npt.NDArray[np.uint64]

    @property
    def predicates(self) -> int:
        return len(self.bits)

    def counts(self) -> npt.NDArray[np.int64]:
        """The number of messages that match each predicate."""
        return kernels.count(self.bits)

    def pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """(indptr, rows): messages rows[indptr[p]:indptr[p + 1]], ascending, match predicate p."""
        indptr = np.append(0, np.cumsum(self.counts()))
        return indptr, kernels.expand(self.bits, np.arange(self.predicates), indptr)


class Matcher:
    """Evaluates many predicates on batches of messages. Picklable, so that Spark can send it to its workers.

    The time is linear in the number of messages and, for each 64 messages, in the number of distinct gates of the
    predicates. Besides the result, it needs a few MiB for registers and a few words for each message.
    """

    def __init__(self, predicates: Sequence[Predicate]) -> None:
        self._program = compile_program(predicates)

    def __getstate__(self) -> dict[str, Any]:
        return {"_program": self._program}

    @property
    def properties(self) -> tuple[str, ...]:
        """The message properties that the predicates read."""
        return self._program.properties

    def match(self, properties: pa.RecordBatch | pa.Array, tags_code: pa.Int64Array | None = None) -> Matches:
        """The matches of each predicate, in the order of the predicates.

        ``properties``: a RecordBatch or StructArray with one column of text for each property (plain or dictionary;
        without a column, all messages lack the property), or a MapArray from text to text (null: no properties).
        ``tags_code``: the tags codes of the consume queue entries (null never matches); None: no message has one.
        Raises TypeError for other types.
        """
        return self.match_columns(columns(properties, self.properties), len(properties), tags_code)

    def match_columns(
        self, columns_by_name: Mapping[str, Column], rows: int, tags_code: pa.Int64Array | None = None
    ) -> Matches:
        """Like match, for ``rows`` messages whose properties are already columns."""
        program = self._program
        classes = kernels.allocate(len(program.axes) * rows, np.int32).reshape(len(program.axes), rows)
        for i, (axis, index) in enumerate(zip(program.axes, self._axis_indexes, strict=True)):
            if isinstance(axis, TextAxis):
                classes[i] = leaves.text_classes(axis, columns_by_name.get(axis.name), index, rows)
            elif axis.name is not None:
                classes[i] = leaves.number_classes(axis, columns_by_name.get(axis.name), index, rows)
            else:
                classes[i] = leaves.tags_code_classes(axis, tags_code, index, rows)
        singles = np.zeros((len(program.singles), packed_bits.words(rows)), np.uint64)
        for name, searched, search in self._searches:
            if name in columns_by_name:
                singles[searched] = leaves.searches(search, columns_by_name[name])
        for name, listed, lists in self._lists:
            if name in columns_by_name:
                singles[listed] = lists.holds(columns_by_name[name])
        pairs = {i: leaf for i, leaf in enumerate(program.singles) if isinstance(leaf, PropertyPairLeaf)}
        for i, answer in zip(pairs, leaves.pairs(pairs.values(), columns_by_name), strict=True):
            if answer is not None:
                singles[i] = packed_bits.pack(answer)
        bits = kernels.evaluate(program, classes, singles, rows)
        if rows % 64:
            bits[:, -1] &= (np.uint64(1) << np.uint64(rows % 64)) - np.uint64(1)
        return Matches(rows, bits)

    @cached_property
    def _axis_indexes(self) -> list[Any]:
        return [
            kernels.index_texts(axis.texts, axis.text_classes)
            if isinstance(axis, TextAxis)
            else kernels.index_cuts(axis.cuts)
            for axis in self._program.axes
        ]

    @cached_property
    def _searches(self) -> list[tuple[str, list[int], TextSearch]]:
        """For the singles that search one property in one way: the property, their numbers, and one search for all."""
        searched: defaultdict[tuple[str, type[SearchLeaf]], dict[int, str]] = defaultdict(dict)
        for i, leaf in enumerate(self._program.singles):
            if isinstance(leaf, SearchLeaf):
                searched[leaf.name, type(leaf)][i] = leaf.text
        return [
            (name, list(texts), TextSearch.of(list(texts.values()), kind)) for (name, kind), texts in searched.items()
        ]

    @cached_property
    def _lists(self) -> list[tuple[str, list[int], TextLists]]:
        """Properties whose texts singles list: the property, which singles, and their lists."""
        listed: defaultdict[str, dict[int, frozenset[str]]] = defaultdict(dict)
        for i, leaf in enumerate(self._program.singles):
            if isinstance(leaf, TextIn):
                listed[leaf.name][i] = leaf.texts
        return [(name, list(texts), TextLists.of(list(texts.values()))) for name, texts in listed.items()]
