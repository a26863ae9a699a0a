"""Runs the program of many predicates on batches of messages, 64 at a time.

The class at the end, Matcher, does one batch in four steps:

1. **Columns.** The batch's properties become a Column for each property that the program reads, from columns of texts,
   dictionaries or maps. Of a dictionary that is shorter than the batch, each text is evaluated once, not once for each
   message.
2. **Classes.** On each axis of the program, each message gets the number of its class: by a hash table of texts, or by
   a search among the cuts between numbers. The loops parse numbers as Java does; the few texts that they leave, such as
   hexadecimal doubles, are parsed in Python.
3. **Singles.** Leaves without an axis are evaluated one kind at a time: all searches in one property by one automaton
   (SearchAutomaton), all long lists of one property by one table (TextLists), comparisons of two properties by Arrow.
4. **Instructions.** A loop fills the registers and runs the program. The result has a row of packed bits for each
   predicate (Matches).

Without its property, a leaf is false. The tags code of the consume queue entry is an axis like any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filtering.frozen import frozen
from filtering.kernels import number_loops, registers, text_loops
from filtering.kernels.compile import Array, allocate, read_only
from filtering.matcher import packed_bits
from filtering.matcher.column import Column, KnownTexts, columns, known_texts
from filtering.matcher.packed_bits import Words, words
from filtering.matcher.program import NumberAxis, Program, TextAxis, compile_program
from filtering.predicate import (
    COMPARE,
    DoublesCompare,
    NumberType,
    Predicate,
    PropertyPairLeaf,
    TextContains,
    TextEndsWith,
    TextIn,
    TextsEqual,
    TextStartsWith,
    order,
    parse,
)

# Searches in texts: many at once.


SEARCHED = 16
"""Octets of a search text that have states: few, so that long texts need little memory."""
SearchLeaf: TypeAlias = TextContains | TextStartsWith | TextEndsWith
Numbers = npt.NDArray[np.int32]


@frozen(eq=False)
class SearchAutomaton:
    """An automaton that reads each text once, octet by octet, for many leaves of one kind.

    A state is the position of a row of ``width`` elements in ``steps``: ``steps[state + classes[octet]]`` is the next
    state. At the states from ``first_end`` on, the first octets of some search texts end. End e has the texts
    ``end_texts[bounds[e]:bounds[e + 1]]``, and those of the end ``next_end[e]`` if that is not -1. What must follow for
    text s is ``rests[rest_offsets[s]:rest_offsets[s + 1]]``.

    TextContains: a state stands for the longest end of what was read with which a search text begins (Aho and
    Corasick, "Efficient string matching", 1975). TextStartsWith: it stands for all that was read, and ``dead`` for
    anything with which no search text begins (-1: there is no such state). TextEndsWith: the same, backwards.
    """

    is_backwards: bool
    classes: Numbers
    steps: Numbers
    width: int
    root: int
    dead: int
    first_end: int
    next_end: Numbers
    bounds: Numbers
    end_texts: Numbers
    rests: npt.NDArray[np.uint8]
    rest_offsets: Numbers

    @classmethod
    def of(cls, texts: Sequence[str], leaf: type[SearchLeaf]) -> SearchAutomaton:
        """The automaton of the leaves of a kind that have these search texts."""
        is_backwards = leaf is TextEndsWith
        encoded = [text.encode()[:: -1 if is_backwards else 1] for text in texts]
        trie = _Trie.of(encoded)
        otherwise = 0 if leaf is TextContains else trie.add_state()
        classes = _classes(encoded)
        steps, shorter, is_end = _transitions(trie, classes, otherwise)
        states, width = steps.shape
        order = np.argsort(is_end, kind="stable")  # the states at which search texts end come last
        place = np.empty(states, np.int32)
        place[order] = np.arange(states)
        first_end = int(np.count_nonzero(~is_end))
        ends = order[first_end:].tolist()
        next_end = [place[shorter[end]] - first_end if end and is_end[shorter[end]] else -1 for end in ends]
        rests = [text[SEARCHED:] for text in encoded]
        return cls(
            is_backwards,
            classes,
            (place * width)[steps[order]].ravel(),
            width,
            int(place[0]) * width,
            int(place[otherwise]) * width if otherwise else -1,
            first_end * width,
            np.array(next_end, np.int32),
            _bounds([len(trie.texts[end]) for end in ends]),
            np.array([number for end in ends for number in trie.texts[end]], np.int32),
            np.frombuffer(b"".join(rests), np.uint8),
            _bounds([len(rest) for rest in rests]),
        )

    def holds(self, column: Column) -> Words:
        """For each leaf, the messages for which it is true: packed bits, shape (leaves, words)."""
        asked = column.asked
        bits = np.zeros((len(self.rest_offsets) - 1, words(len(asked))), np.uint64)
        automaton = (self.is_backwards, self.classes, self.steps, self.width, self.root, self.dead, self.first_end)
        ends = (self.next_end, self.bounds, self.end_texts, self.rests, self.rest_offsets)
        text_loops.search(asked.buffers, len(asked), *automaton, *ends, bits)
        if column.positions is None or asked is column:
            return bits
        return packed_bits.spread(bits, len(asked), column.positions)


@frozen(eq=False)
class _Trie:
    """A state for each beginning of the searched octets of the texts; state 0 is the empty one.

    ``children[state]``: the states that are one octet longer, by this octet. ``texts[state]``: the numbers of the texts
    whose searched octets end there.
    """

    children: list[dict[int, int]]
    texts: list[list[int]]

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> _Trie:
        trie = cls([{}], [[]])
        for number, text in enumerate(texts):
            state = 0
            for octet in text[:SEARCHED]:
                if octet not in trie.children[state]:
                    trie.children[state][octet] = trie.add_state()
                state = trie.children[state][octet]
            trie.texts[state].append(number)
        return trie

    def add_state(self) -> int:
        """A new state, without children and texts."""
        self.children.append({})
        self.texts.append([])
        return len(self.children) - 1


def _classes(texts: Sequence[bytes]) -> Numbers:
    """The class of each octet: 0 for those that no text has among its searched octets. Shape (256,)."""
    octets = sorted({octet for text in texts for octet in text[:SEARCHED]})
    classes = np.zeros(256, np.int32)
    classes[octets] = np.arange(1, len(octets) + 1)
    return classes


def _transitions(trie: _Trie, classes: Numbers, otherwise: int) -> tuple[Numbers, Sequence[int], npt.NDArray[np.bool_]]:
    """The next states, shape (states, classes); and for each state, the next shorter one, and whether it is an end.

    The next shorter state (the "failure" of Aho and Corasick) is that of the longest end of what a state stands for, or
    ``otherwise`` if no search text begins so. A state is an end if a text ends there, or at a shorter state.
    """
    states = len(trie.children)
    steps = np.full((states, len(np.unique(classes))), otherwise, np.int32)
    shorter = [otherwise] * states
    is_end = np.array([bool(numbers) for numbers in trie.texts])
    in_breadth = [0]
    for state in in_breadth:
        if state:
            steps[state] = steps[shorter[state]]
            is_end[state] |= is_end[shorter[state]]
        for octet, child in trie.children[state].items():
            shorter[child] = int(steps[state, classes[octet]])
            steps[state, classes[octet]] = child
            in_breadth.append(child)
    return steps, shorter, is_end


def _bounds(lengths: Sequence[int]) -> Numbers:
    return np.cumsum([0, *lengths]).astype(np.int32)


# Long lists of texts.


@frozen(eq=False)
class TextLists:
    """Lists of texts. ``numbers`` has the number of each of the ``count`` distinct texts, and -1 for others.

    ``lists_with``: for each list, the numbers of its texts as packed bits, shape (lists, words).
    """

    numbers: KnownTexts
    count: int
    lists_with: Words

    @classmethod
    def of(cls, lists: Sequence[frozenset[str]]) -> TextLists:
        number = {text: i for i, text in enumerate(sorted(frozenset().union(*lists)))}
        lists_with = np.zeros((len(lists), words(len(number))), np.uint64)
        for bits, texts in zip(lists_with, lists, strict=True):
            listed = np.array([number[text] for text in texts], np.uint64)
            np.bitwise_or.at(bits, listed >> np.uint64(6), np.uint64(1) << (listed & np.uint64(63)))
        answers = np.append(np.arange(len(number)), (-1, -1)).astype(np.int32)
        return cls(known_texts(tuple(number), answers), len(number), lists_with)

    def holds(self, column: Column) -> Words:
        """For each list, the messages whose text is in it: packed bits, shape (lists, words)."""
        text_of_row = column.answer(self.numbers.answers, -1).astype(np.int32, copy=False)
        return packed_bits.spread(self.lists_with, self.count, text_of_row)


# Numbers, as Java parses and orders them.


CELLS_PER_CUT = 8
"""With several cells for each cut, most cells have one cut or none."""
_GREATEST = {NumberType.INT: 2**31 - 1, NumberType.LONG: 2**63 - 1, NumberType.DOUBLE: 0}
Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


def numbers(column: Column, type: NumberType) -> tuple[Int64s, Bools]:
    """The number of each message (an integer, or the double_order of a double), and whether it has one."""
    asked = column.asked
    values, is_number, odd = (allocate(len(asked), each) for each in (np.int64, np.bool_, np.bool_))
    if number_loops.parse(asked.buffers, _GREATEST[type], values, is_number, odd):
        values[odd], is_number[odd] = _odd_numbers(asked, odd, type)
    return column.spread(values, 0), column.spread(is_number, False)


def _odd_numbers(column: Column, odd: Bools, type: NumberType) -> tuple[Int64s, Bools]:
    """The numbers of the ``odd`` texts, which are rare and which the loops leave to Python."""
    distinct = column.text_of_each().take(pa.array(np.flatnonzero(odd))).dictionary_encode()
    parsed = [parse(type, text) for text in distinct.dictionary.to_pylist()]
    values = np.array([0 if number is None else order(type, number) for number in parsed], np.int64)
    is_number = np.array([number is not None for number in parsed], np.bool_)
    indices = distinct.indices.to_numpy()
    return values[indices], is_number[indices]


@frozen(eq=False)
class Cuts:
    """Ascending ``cuts``, and ``grid[i]`` cuts in the cells before i: cell i starts i << shift after the first cut.

    No cell has more than ``in_cell`` cuts. After the ``count`` cuts, ``cuts`` has ``in_cell`` + 1 more elements:
    a loop may read beyond the last cut. The class of a number is how many cuts are not greater; without a number it is
    one more than all cuts.
    """

    type: NumberType
    cuts: Int64s
    count: int
    shift: int
    grid: npt.NDArray[np.int32]
    in_cell: int

    @classmethod
    def of(cls, type: NumberType, cuts: Int64s) -> Cuts:
        span = int(cuts[-1]) - int(cuts[0]) if len(cuts) else 0
        shift = max(0, span.bit_length() - (CELLS_PER_CUT * len(cuts)).bit_length())
        grid = np.empty((span >> shift) + 2, np.int32)
        number_loops.fill_grid(read_only(cuts), shift, grid)
        in_cell = int(np.diff(grid).max())
        return cls(type, np.append(cuts, np.full(in_cell + 1, 2**63 - 1)), len(cuts), shift, grid, in_cell)

    @property
    def _arguments(self) -> tuple[Array, int, int, Array, int]:
        """As the loops of filtering.kernels.number_loops take them."""
        return read_only(self.cuts), self.count, self.shift, read_only(self.grid), self.in_cell

    def classes(self, values: Int64s, is_number: Bools) -> Numbers:
        """The class of each number."""
        classes = allocate(len(values), np.int32)
        number_loops.classify(values, is_number, *self._arguments, classes)
        return classes

    def answers(self, column: Column) -> Numbers:
        """The class of each message's number."""
        classes, odd = allocate(len(column), np.int32), allocate(len(column), np.bool_)
        if number_loops.parse_and_classify(column.buffers, _GREATEST[self.type], *self._arguments, classes, odd):
            classes[odd] = self.classes(*_odd_numbers(column, odd, self.type))
        return classes


# Comparisons of two properties.


def pair_answers(
    pair_leaves: Mapping[int, PropertyPairLeaf], columns: Mapping[str, Column]
) -> Iterator[tuple[int, Bools]]:
    """The number of each leaf whose two properties the messages have, and the messages for which it is true.

    Each property is read once.
    """
    texts = cache(lambda name: columns[name].text_of_each())
    doubles = cache(lambda name: numbers(columns[name], NumberType.DOUBLE))
    for i, leaf in pair_leaves.items():
        if leaf.left not in columns or leaf.right not in columns:
            continue
        match leaf:
            case TextsEqual():
                yield i, _true(pc.equal(texts(leaf.left), texts(leaf.right)))
            case DoublesCompare(comparison=comparison):
                (left, is_left), (right, is_right) = doubles(leaf.left), doubles(leaf.right)
                yield i, np.asarray(COMPARE[comparison](left, right)) & is_left & is_right
            case _:
                raise TypeError(f"There is no leaf {type(leaf).__name__} in a predicate.")


def _true(array: pa.BooleanArray) -> Bools:
    result: Bools = array.fill_null(False).to_numpy(zero_copy_only=False)
    return result


# The program on batches.


@frozen(eq=False)
class Matches:
    """The matches of n predicates among ``rows`` messages. ``bits``: packed bits, shape (predicates, words)."""

    rows: int
    bits: npt.NDArray[np.uint64]

    @property
    def predicates(self) -> int:
        return len(self.bits)

    def counts(self) -> npt.NDArray[np.int64]:
        """The number of messages that match each predicate."""
        return packed_bits.count(self.bits)

    def pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """(indptr, rows): messages rows[indptr[p]:indptr[p + 1]], ascending, match predicate p."""
        indptr = np.append(0, np.cumsum(self.counts()))
        return indptr, packed_bits.positions(self.bits, np.arange(self.predicates), indptr)


def _tags_code_classes(cuts: KnownTexts | Cuts, tags_code: pa.Int64Array) -> Numbers:
    """The class of each message on the axis of tags codes. The broker compares their lower 32 bits."""
    assert isinstance(cuts, Cuts)
    low_bits = tags_code.fill_null(0).to_numpy().astype(np.int32).astype(np.int64)
    return cuts.classes(low_bits, tags_code.is_valid().to_numpy(zero_copy_only=False))


def _run(program: Program, classes: Numbers, singles: Words, rows: int) -> Words:
    """The program's outputs: packed bits, shape (outputs, words).

    ``classes``: shape (axes, rows), the class of each message. ``singles``: packed bits of the leaves without an axis.
    """
    bits = allocate((program.outputs, words(rows)), np.uint64)
    registers.evaluate(
        classes,
        np.array([axis.start for axis in program.axes], np.int64),
        np.array([axis.registers for axis in program.axes], np.int64),
        np.array([isinstance(axis, NumberAxis) for axis in program.axes], bool),
        singles,
        program.first_single,
        read_only(program.instructions),
        allocate((program.registers + 1, registers.REGISTER_WORDS), np.uint64),
        bits,
    )
    if rows % 64:  # inverted outputs have bits after the last message
        bits[:, -1] &= (np.uint64(1) << np.uint64(rows % 64)) - np.uint64(1)
    return bits


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
        classes = allocate((len(program.axes), rows), np.int32)
        for axis, lookup, axis_classes in zip(program.axes, self._lookups, classes, strict=True):
            if axis.name is not None and axis.name in columns_by_name:
                axis_classes[:] = columns_by_name[axis.name].answer(lookup.answers, axis.missing)
            elif axis.name is None and tags_code is not None:
                axis_classes[:] = _tags_code_classes(lookup, tags_code)
            else:
                axis_classes[:] = axis.missing
        singles = np.zeros((len(program.singles), packed_bits.words(rows)), np.uint64)
        for name, searched, search in self._searches:
            if name in columns_by_name:
                singles[searched] = search.holds(columns_by_name[name])
        for name, listed, lists in self._lists:
            if name in columns_by_name:
                singles[listed] = lists.holds(columns_by_name[name])
        for i, answer in pair_answers(self._pairs, columns_by_name):
            singles[i] = packed_bits.pack(answer)
        return Matches(rows, _run(program, classes, singles, rows))

    @cached_property
    def _lookups(self) -> list[KnownTexts | Cuts]:
        """What looks up the classes of each axis: its texts, or its cuts."""
        return [
            known_texts(axis.texts, axis.text_classes) if isinstance(axis, TextAxis) else Cuts.of(axis.type, axis.cuts)
            for axis in self._program.axes
        ]

    @cached_property
    def _searches(self) -> list[tuple[str, list[int], SearchAutomaton]]:
        """For the singles that search one property in one way: the property, their numbers, and one search for all."""
        searched: defaultdict[tuple[str, type[SearchLeaf]], dict[int, str]] = defaultdict(dict)
        for i, leaf in enumerate(self._program.singles):
            if isinstance(leaf, SearchLeaf):
                searched[leaf.name, type(leaf)][i] = leaf.text
        return [
            (name, list(texts), SearchAutomaton.of(list(texts.values()), kind))
            for (name, kind), texts in searched.items()
        ]

    @cached_property
    def _pairs(self) -> dict[int, PropertyPairLeaf]:
        """The singles that compare two properties, by their numbers."""
        return {i: leaf for i, leaf in enumerate(self._program.singles) if isinstance(leaf, PropertyPairLeaf)}

    @cached_property
    def _lists(self) -> list[tuple[str, list[int], TextLists]]:
        """Properties whose texts singles list: the property, which singles, and their lists."""
        listed: defaultdict[str, dict[int, frozenset[str]]] = defaultdict(dict)
        for i, leaf in enumerate(self._program.singles):
            if isinstance(leaf, TextIn):
                listed[leaf.name][i] = leaf.texts
        return [(name, list(texts), TextLists.of(list(texts.values()))) for name, texts in listed.items()]
