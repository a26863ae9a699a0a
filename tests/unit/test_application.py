"""Whatever goes wrong in a job: one line, and an exit code that a scheduler can act on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from jobs.cli import application
from jobs.cli.application import CheckFailed
from schemas.errors import UsageError, WarehouseBusy

PROJECT = Path(__file__).parents[2]
SPARK = """An error occurred while calling o1216.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/w/x. SQLSTATE: 58030
	at org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:843)
Caused by: java.io.IOException: No space left on device
	at java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
PYTHON = """Job aborted due to stage failure
Caused by: org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] Traceback (most recent call last):
  File "/work/filtering/x.py", line 90, in __call__
    yield self._block(topic, run)
AttributeError: no such thing
 SQLSTATE: 38000
	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:665)
"""
DELTA = "Generic error\n  \x1b[31m↳\x1b[0m Unable to copy data to file\n  \x1b[31m↳\x1b[0m No space left on device\n"
ARROW = "Error writing bytes to file. Detail: [errno 28] No space left on device"
FULL = "No space left on device"
FREE = f"; free some space (temporary files are in {tempfile.gettempdir()}), and run the same command again"
FAILURES: list[tuple[BaseException | None, int, str]] = [
    (None, 0, ""),
    (UsageError("give a folder"), 2, "mqsieve: give a folder\n"),
    (UsageError("bad\n  value"), 2, "mqsieve: bad value\n"),
    (ValueError("a bug"), 1, "mqsieve: failed: a bug (-v shows all)\n"),
    (
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/x"),
        2,
        "mqsieve: /x: no such file or directory; check the path\n",
    ),
    (IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), "/x"), 2, "mqsieve: /x: is a directory; give a file\n"),
    (CheckFailed("3 differences"), 3, "mqsieve: 3 differences\n"),
    (WarehouseBusy("another run is writing"), 4, "mqsieve: another run is writing\n"),
    (
        RuntimeError("[DELTA_CONCURRENT_APPEND] ConcurrentAppendException\n\tat x"),
        4,
        "mqsieve: another writer committed first: run the same command again\n",
    ),
    (
        RuntimeError("Failed to commit transaction: a concurrent transaction deleted data this operation read."),
        4,
        "mqsieve: another writer committed first: run the same command again\n",
    ),
    (RuntimeError(SPARK), 1, f"mqsieve: failed: java.io.IOException: {FULL}{FREE} (-v shows all)\n"),
    (RuntimeError(PYTHON), 1, "mqsieve: failed: AttributeError: no such thing (-v shows all)\n"),
    (
        OSError(DELTA),
        1,
        f"mqsieve: failed: Unable to copy data to file: No space left on device{FREE} (-v shows all)\n",
    ),
    (OSError(errno.ENOSPC, ARROW), 1, f"mqsieve: failed: no space left on device{FREE}\n"),
    (RuntimeError("one\ntwo"), 1, "mqsieve: failed: one (-v shows all)\n"),
    (RuntimeError(), 1, "mqsieve: failed: RuntimeError (-v shows all)\n"),
    (
        KeyboardInterrupt(),
        130,
        "mqsieve: interrupted: no table is half written; run the same command again to continue\n",
    ),
]


@pytest.mark.parametrize(("error", "code", "message"), FAILURES)
def test_a_failure_is_one_line(
    error: BaseException | None,
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["job", "--option"])
    monkeypatch.delenv("MQSIEVE_LOG_LEVEL", raising=False)

    def main(arguments: list[str]) -> None:
        assert arguments == ["--option"]
        if error is not None:
            raise error

    with pytest.raises(SystemExit) as ended:
        application.run(main)
    assert (ended.value.code, capsys.readouterr().err) == (code, message)


def test_a_failure_is_the_last_line_of_a_log() -> None:
    """The log of cron has both outputs, and its mail the last lines of it."""
    frame = "from jobs.cli import application\n\ndef main(_):\n    print('a summary')\n    raise ValueError('a bug')\n"
    ended = subprocess.run(
        [sys.executable, "-c", f"{frame}\napplication.run(main)"],
        cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout == "a summary\nmqsieve: failed: a bug (-v shows all)\n"


def test_an_argument_that_is_not_utf_8(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Python shows its bytes as halves of surrogate pairs, which no table can hold."""
    monkeypatch.setattr(sys, "argv", ["job", "--message", "a\udcff"])

    def main(arguments: list[str]) -> None:
        raise AssertionError("must not run")

    with pytest.raises(SystemExit) as ended:
        application.run(main)
    assert (ended.value.code, capsys.readouterr().err) == (2, "mqsieve: not UTF-8: the argument a\\udcff\n")


@pytest.mark.parametrize(
    ("job", "code", "message"),
    [
        ("for _ in range(100_000): print('a line')", 141, ""),
        ("print('a line')", 141, ""),
        ("print('a line', end=''); raise CheckFailed('2 differences')", 3, "mqsieve: 2 differences\n"),
    ],
)
def test_a_reader_that_has_enough_ends_a_job_quietly(job: str, code: int, message: str) -> None:
    frame = (
        "from jobs.cli import application\nfrom jobs.cli.application import CheckFailed\n"
        f"def main(arguments):\n    {job}\napplication.run(main)\n"
    )
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", frame]
    buffered = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = subprocess.run(
        command, cwd=PROJECT, stdout=write, stderr=subprocess.PIPE, text=True, check=False,
        env=buffered,
    )  # fmt: skip
    os.close(write)
    assert (ended.returncode, ended.stderr) == (code, message)


def test_a_terminal_that_is_not_utf_8() -> None:
    """Text has escapes for what the terminal lacks; JSON is UTF-8 everywhere."""
    frame = (
        "from jobs.cli import application\nfrom jobs.cli.output import print_json\n"
        "def main(arguments):\n    print('✗ 港口 é')\n    print_json({'consumer_group': '港口'})\n"
        "application.run(main)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", frame],
        cwd=PROJECT, capture_output=True, check=False, env=os.environ | {"PYTHONIOENCODING": "latin-1"},
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout == rb"\u2717 \u6e2f\u53e3 " + "é\n".encode("latin-1") + '{"consumer_group": "港口"}\n'.encode()


def test_verbose_shows_where(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQSIEVE_LOG_LEVEL", "info")

    def main(arguments: list[str]) -> None:
        raise RuntimeError("deep inside")

    with pytest.raises(SystemExit):
        application.run(main)
    message = capsys.readouterr().err
    assert message.startswith("mqsieve: failed: deep inside (-v shows all)\nTraceback (most recent call last):")


def test_a_job_imports_pandas_only_for_user_code() -> None:
    """PyArrow would import it for the first list."""
    frame = (
        "import sys\nimport pyarrow as pa\nfrom jobs.cli import application\n"
        "from jobs.cli.application import allow_pandas\n"
        "def main(arguments):\n"
        "    pa.array([1])\n"
        "    print(sys.modules.get('pandas'))\n"
        "    allow_pandas()\n"
        "    import pandas\n"
        "    print(pa.array(pandas.Series([1])).to_pylist())\n"
        "application.run(main)\n"
    )
    ended = subprocess.run([sys.executable, "-c", frame], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert ended.stdout == "None\n[1]\n"


def test_an_explanation_loads_no_compiler() -> None:
    """Importing Numba takes longer than finding a message."""
    frame = "import sys, answers.explain; print('numba' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", frame], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


@pytest.mark.parametrize("module", ["argparse", "pyarrow"])
def test_an_interrupt_while_imports_load_is_one_line(tmp_path: Path, module: str) -> None:
    """As when Ctrl-C is pressed at once: while a job's first modules load, and its last ones."""
    (tmp_path / f"{module}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    # Tests that run in the background ignore the signal, and so would the job.
    listen = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", listen, str(PROJECT / "spark-submit.sh"), "lag", "--warehouse", str(tmp_path)]
    ended = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        130,
        "",
        "mqsieve: interrupted: no table is half written; run the same command again to continue\n",
    )


@pytest.mark.parametrize(
    "callback",
    ["gone = weakref.ref(Held(), interrupt)", "ctypes.CFUNCTYPE(None)(interrupt)()"],
    ids=["of an import's lock", "of llvmlite"],
)
def test_an_interrupt_in_a_callback_ends_the_job(callback: str) -> None:
    """Python drops what is raised there, prints its stack trace, and the job would go on."""
    frame = (
        "import ctypes, os, signal, sys, time, weakref\n"
        "from jobs.cli import application\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which a test in the background ignores
        "class Held: pass\n"
        "def interrupt(*_): os.kill(os.getpid(), signal.SIGINT); return None\n"
        f"def main(arguments):\n    {callback}\n    time.sleep(20)\n    print('went on')\n"
        "application.run(main)\n"
    )
    ended = subprocess.run([sys.executable, "-c", frame], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        130,
        "",
        "mqsieve: interrupted: no table is half written; run the same command again to continue\n",
    )
