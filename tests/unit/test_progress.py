"""What a night tells on stderr of its time: compilation of loops is told, and is not part of the rate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numba
import numpy as np
import pytest

from filtering.kernels import dispatcher  # listens to Numba
from jobs.cli.night_job import compile_time, print_compiles, print_end
from jobs.night.run import NightReport

njit: Any = numba.njit


def report(messages: int, seconds: float) -> NightReport:
    """The report of a night that read some messages."""
    entry = cast("Any", SimpleNamespace(rows={"commitlog": messages}))
    inputs = cast("Any", SimpleNamespace(broker=SimpleNamespace(name="broker-a")))
    return NightReport(inputs, cast("Any", None), (), None, entry, seconds)


@pytest.mark.parametrize(
    ("messages", "seconds", "compiling", "line"),
    [
        (743, 20.0, 19.5, "743 messages, 1,486/s (20.0 s, of which 19.5 s to compile)"),
        (743, 0.5, 0.0, "743 messages, 1,486/s (0.5 s)"),
        (1, 5.0, 4.0, "1 message, 1/s (5.0 s, of which 4.0 s to compile)"),
        (0, 3.0, 2.0, "done (3.0 s, of which 2.0 s to compile)"),
    ],
)
def test_the_rate_is_that_without_compilation(
    messages: int, seconds: float, compiling: float, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_end(report(messages, seconds), compiling)
    assert capsys.readouterr().err.endswith(f"UTC broker-a: {line}\n")


def test_compilation_is_told_when_it_begins_and_measured(capsys: pytest.CaptureFixture[str]) -> None:
    def one_more(value: int) -> int:
        return value + 1

    first, second = njit(one_more), njit(one_more)
    with compile_time(print_compiles) as compiling:
        first(1)
        once = compiling.seconds
        second(np.zeros(3))
        twice = compiling.seconds
        first(2)
    assert 0 < once < twice == compiling.seconds
    assert capsys.readouterr().err == "mqsieve compiles its loops for this processor, once: up to a minute\n"


def test_compilation_that_no_folder_keeps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a package that root installed, for a user without a home."""
    for place in dispatcher.PLACES:
        monkeypatch.setattr(place, "from_function", lambda *_: None)
    print_compiles()
    assert capsys.readouterr().err == (
        "mqsieve compiles its loops for this processor, each time, up to a minute: set NUMBA_CACHE_DIR to a "
        "folder that you may write to\n"
    )


def test_nothing_is_told_of_what_is_compiled_already(capsys: pytest.CaptureFixture[str]) -> None:
    function = njit(abs_of)
    function(1)
    with compile_time(print_compiles) as compiling:
        function(2)
    assert compiling.seconds == 0
    assert capsys.readouterr().err == ""


def abs_of(value: int) -> int:
    return value if value > 0 else -value
