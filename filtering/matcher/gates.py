"""Predicates as two-input AND gates over registers of packed bits.

A signal is twice the number of its node, plus one if it is inverted. Node 0 is the constant false. Equal gates are
one gate. This is the and-inverter graph of logic synthesis (Kuehlmann et al., "Robust Boolean Reasoning for
Equivalence Checking and Functional Property Verification", 2002).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

NEVER = 0
ALWAYS = 1


def invert(signal: int) -> int:
    """The signal that is true where ``signal`` is false."""
    return signal ^ 1


class Gates:
    """A graph of gates. Its first nodes are ``inputs`` registers, numbered from 1."""

    def __init__(self, inputs: int) -> None:
        self._first_gate = inputs + 1
        self._operands: list[tuple[int, int]] = []
        self._known: dict[tuple[int, int], int] = {}

    def all_of(self, signals: Iterable[int]) -> int:
        """The AND of some signals; ALWAYS without any."""
        result = ALWAYS
        for signal in sorted(set(signals)):
            result = self._gate(result, signal)
        return result

    def any_of(self, signals: Iterable[int]) -> int:
        """The OR of some signals; NEVER without any."""
        return invert(self.all_of(invert(signal) for signal in signals))

    def _gate(self, left: int, right: int) -> int:
        if left > right:
            left, right = right, left
        if left == NEVER or left == invert(right):
            return NEVER
        if left in (ALWAYS, right):
            return right
        gate = self._known.get((left, right))
        if gate is None:
            gate = self._known[left, right] = 2 * (self._first_gate + len(self._operands))
            self._operands.append((left, right))
        return gate

    def instructions(self, outputs: Sequence[int]) -> tuple[npt.NDArray[np.int32], int]:
        """Instructions that compute the signals ``outputs``, shape (instructions, 4), and how many registers they use.

        An instruction (target, left, right, inverted) stores the AND of the signals left and right in register
        ``target``. A negative target means output ~target, which is inverted if ``inverted`` is 1. Signals here have
        numbers of registers instead of nodes. Register 0 holds zeros; the inputs follow. A register is used again
        after the last instruction that reads its gate.
        """
        wanted: dict[int, list[int]] = {}
        for output, signal in enumerate(outputs):
            wanted.setdefault(signal >> 1, []).append(output)
        last_reader = self._last_readers(wanted)
        register = {node: node for node in range(self._first_gate)}
        free: list[int] = []
        registers = self._first_gate
        instructions: list[tuple[int, int, int, int]] = []

        def place(signal: int) -> int:
            return register[signal >> 1] << 1 | signal & 1

        def put_out(node: int) -> None:
            for output in wanted.get(node, ()):
                instructions.append((~output, register[node] << 1, register[node] << 1, outputs[output] & 1))

        for node in sorted(node for node in wanted if node < self._first_gate):
            put_out(node)
        for node, (left, right) in enumerate(self._operands, self._first_gate):
            if node not in last_reader:
                continue
            readers = wanted.get(node, ())
            if last_reader[node] == node and len(readers) == 1:
                instructions.append((~readers[0], place(left), place(right), outputs[readers[0]] & 1))
            else:
                if not free:
                    free.append(registers)
                    registers += 1
                register[node] = free.pop()
                instructions.append((register[node], place(left), place(right), 0))
                put_out(node)
            for done in (left >> 1, right >> 1, node):
                if last_reader.get(done) == node and done in register:
                    free.append(register.pop(done))
        return np.array(instructions, np.int32).reshape(-1, 4), registers

    def _last_readers(self, wanted: Iterable[int]) -> dict[int, int]:
        """The last gate that reads each needed gate; the gate itself if it is only an output."""
        last_reader = {node: node for node in wanted if node >= self._first_gate}
        for i in range(len(self._operands) - 1, -1, -1):
            node = self._first_gate + i
            if node in last_reader:
                for operand in (signal >> 1 for signal in self._operands[i]):
                    if operand >= self._first_gate and last_reader.get(operand, operand) == operand:
                        last_reader[operand] = node
        return last_reader
