"""Both ways to list the positions of set bits: which one runs depends on the processor."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.registry import cpu_target

from filtering.kernels import llvm
from filtering.kernels.registers import POSITIONS_IN_OCTET, STORED_AT_ONCE

HAS_VBMI2 = llvm.VBMI2 in cpu_target.target_context.codegen().magic_tuple()[2]
needs_vbmi2 = pytest.mark.skipif(not HAS_VBMI2, reason="the processor has no AVX-512 VBMI2")


@pytest.mark.parametrize("way", [llvm.look_up, pytest.param(llvm.compress, marks=needs_vbmi2)])
def test_positions_of_set_bits(way: Callable[..., Any]) -> None:
    store = llvm.storing(lambda _: way)

    @numba.njit
    def positions(words: Any, into: Any) -> Any:
        at = 0
        for i in range(len(words)):
            at = store(into, at, POSITIONS_IN_OCTET, words[i], np.int32(64 * i))
        return at

    random = np.random.default_rng(5)
    bits = np.concatenate([random.random(64) < share for share in np.linspace(0, 1, 129)])
    words = np.packbits(bits, bitorder="little").view(np.uint64)
    into = np.full(bits.sum() + STORED_AT_ONCE, -1, np.int32)
    assert positions(words, into) == bits.sum()
    assert into[: bits.sum()].tolist() == np.flatnonzero(bits).tolist()
