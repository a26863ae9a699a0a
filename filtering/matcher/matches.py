"""The matches of predicates in a batch of messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filtering.matcher.kernels import kernels


@dataclass(frozen=True, eq=False)
class Matches:
    """The matches of n predicates over a batch of ``rows`` messages.

    ``bits``: shape (predicates, words), packed bits.
    """

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
