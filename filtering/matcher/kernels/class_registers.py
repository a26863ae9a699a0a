"""Fills registers of packed bits with the messages of each class of an axis."""

from __future__ import annotations

import numpy as np

from filtering.matcher.kernels.words import equal_bits
from filtering.numba_compile import Array, Int, compiled

COMPARED = 24
"""Up to this number of classes, comparing all messages with each class is cheaper than setting each message's bit."""
UNSORTED = 128
"""Up to this number of cumulative classes, setting bits in any order is cheaper than sorting messages by class."""


@compiled
def load_classes(classes: Array, first: Int, used: Int, registers: Array) -> None:
    """Fills one register for each class with the messages of that class, for ``used`` words from word ``first``."""
    count = len(registers)
    whole = min(used, (len(classes) >> 6) - first) if count <= COMPARED else 0
    for register in range(count):
        for word in range(whole):
            registers[register, word] = equal_bits(classes, (first + word) << 6, np.int32(register))
        for word in range(whole, registers.shape[1]):
            registers[register, word] = 0
    for row in range((first + whole) << 6, min(len(classes), (first + used) << 6)):
        if classes[row] < count:
            registers[classes[row], (row >> 6) - first] |= np.uint64(1) << np.uint64(row & 63)


@compiled
def load_cumulative_classes(classes: Array, first: Int, used: Int, registers: Array) -> None:
    """Like load_classes, but a register also has the messages of all lower classes."""
    count, width = registers.shape
    if count <= UNSORTED:
        load_classes(classes, first, used, registers)
        for register in range(1, count):
            for word in range(width):
                registers[register, word] |= registers[register - 1, word]
        return
    begin, end = first << 6, min(len(classes), (first + used) << 6)
    ends, by_class = np.zeros(count + 1, np.int32), np.empty(end - begin, np.int32)
    for row in range(begin, end):
        if classes[row] < count:
            ends[classes[row] + 1] += 1
    for register in range(count):
        ends[register + 1] += ends[register]
    for row in range(begin, end):
        if classes[row] < count:
            by_class[ends[classes[row]]] = row - begin
            ends[classes[row]] += 1
    so_far = np.zeros(width, np.uint64)
    at = 0
    for register in range(count):
        for i in range(at, ends[register]):
            so_far[by_class[i] >> 6] |= np.uint64(1) << np.uint64(by_class[i] & 63)
        at = ends[register]
        for word in range(width):
            registers[register, word] = so_far[word]
