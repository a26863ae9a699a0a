"""Numba's compiler, but its functions may use the whole vector registers of the processor.

LLVM prefers half of a register of 512 bits on Intel's processors. That made the matcher up to a third slower.
"""

from __future__ import annotations

from typing import Any

from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NativeLowering


class WholeRegisters(CompilerBase):
    """For ``numba.njit(pipeline_class=WholeRegisters)``. Other functions in the process stay as they are."""

    def define_pipelines(self) -> list[Any]:
        pipeline: Any = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        pipeline.passes = [(_Lowering if step is NativeLowering else step, text) for step, text in pipeline.passes]
        return [pipeline]


class _Lower(Lower):
    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)  # type: ignore[no-untyped-call]
        # llvmlite's own add() takes only attributes without a value.
        set.add(self.function.attributes, '"prefer-vector-width"="512"')


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Lowering(BaseNativeLowering):
    _name: Any = "lowering_to_whole_registers"
    lowering_class = _Lower
