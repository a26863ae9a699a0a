"""Where Numba cannot be imported, NumPy answers."""

import subprocess
import sys


def test_without_numba_numpy_answers():
    program = """
import sys
sys.modules["numba"] = None
import pyarrow as pa
from filtering.matcher import Matcher, kernels
from filtering.predicate import TextIn
matches = Matcher([TextIn("a", frozenset(["x"]))]).match(pa.record_batch({"a": ["x", "y", "x"]}))
print(kernels.backend.__name__, *matches.pairs()[1])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["filtering.matcher.kernels.in_numpy", "0", "2"]
