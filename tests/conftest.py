"""The settings of all tests, and which tests share a process."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/spark/"

# Spark starts each Java with the options in the file java-opts there. It works for seconds here: the compiler for code
# that runs longer would take half of the time, and the check of the bytecode in Spark's jars a fifth of the rest.
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "java")

# The known answers are millions of long-lived objects: garbage collections took half of the time.
gc.set_threshold(200_000, 20, 1_000)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("dist") == "no" or hasattr(config, "workerinput"):  # not where tests are only handed out
        from hypothesis import settings

        # The same examples in every run, so that failures repeat. For new examples: tests.unit.sql92.differential.
        settings.register_profile("repeatable", derandomize=True, deadline=None)
        settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def loops_are_listed() -> Iterator[None]:
    """Whatever the tests of a process call, the set-up compiles it (conf/compile_loops.py)."""
    from numba.core import event, types

    listed = (Path(__file__).parents[1] / "conf" / "loops.txt").read_text().splitlines()
    compiled: list[str] = []
    running: list[event.Event] = []

    class Compilations(event.Listener):
        def on_start(self, started: event.Event) -> None:
            function = started.data["dispatcher"].py_func
            if not running and function.__module__.startswith(("filtering.", "schemas.")):
                text = repr(started.data["args"])
                for named in started.data["args"]:
                    if isinstance(named, types.NamedTuple | types.NamedUniTuple):
                        made = f"BaseTuple.from_types({tuple(named.types)!r}, {named.instance_class.__name__})"
                        text = text.replace(repr(named), made)
                compiled.append(f"{function.__module__}.{function.__name__} {text}")
            running.append(started)

        def on_end(self, ended: event.Event) -> None:
            running.pop()

    with event.install_listener("numba:compile", Compilations()):
        yield
    if missing := sorted({*compiled} - {*listed}):
        pytest.fail("\n".join(["conf/loops.txt lacks:", *missing]), pytrace=False)


class OneProcessForEachFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A file's tests stay in one process, and so do all tests that share the Spark session."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SPARK if file.startswith(SPARK) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return OneProcessForEachFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(SPARK))  # what takes longest begins first


def pytest_sessionfinish() -> None:
    # Pytest and Python collect garbage ten times at the end; the known answers are left out.
    gc.freeze()
