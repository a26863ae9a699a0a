"""Commands of a report reach the job as they are meant, whatever names are in them."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from jobs.report_page import Commands, is_plain
from schemas.errors import shell_word
from tests.report_example import report

NAMES = (
    "cg_orders", "%RETRY%cg", "two words", "it's", "$(touch x)", "`touch x`", "a;b|c&d", "tab\there", "line\nbreak",
    "bidi\u202eme",
    "'\n\\", "语", "*", "~", "-x", "", "\x1b[31m",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_the_name_back(name: str) -> None:
    script = f"printf '%s\\0' {shell_word(name)}"
    ended = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert ended.stdout.decode() == f"{name}\0"
    assert shell_word(name).isprintable()


def test_a_name_like_an_option_is_none() -> None:
    command = Commands(report()).explain_group("-x", "T", (0, 5))
    assert command == ("./spark-submit.sh explain --warehouse /data/mqsieve --group=-x --topic T --queue 0 --offset 5")
    assert not is_plain("-x")


def test_a_group_that_never_pulled_has_its_pulls() -> None:
    command = Commands(report()).explain_group("cg", "T", None)
    assert command == "./spark-submit.sh pulls --warehouse /data/mqsieve --group cg --topic T"


def test_the_broker_is_named_where_there_are_several() -> None:
    commands = Commands(replace(report(), broker_is_alone=False))
    assert commands.compare("2026") == (
        "./spark-submit.sh report --warehouse /data/mqsieve --broker broker-a --compare 2026 --output night.html"
    )


def test_names_too_long_to_show_are_left_out() -> None:
    command = Commands(report()).explain_group("'" * 255, "T", (0, 5))
    assert command == "./spark-submit.sh explain --warehouse /data/mqsieve …"
