"""Subscription files whose bytes are not UTF-8, or that were cut: what is quarantined, with which bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from jobs import nightly, register
from tests.captures import capture
from tests.nights.commands import GOOD_EVENT, Run, rows_of

GOOD_LINE = GOOD_EVENT.encode()
LATIN_1 = GOOD_LINE.replace(b"cg_good", b"cg_bad").replace(b"paid", "bezahlt für".encode("latin-1"))
NOT_UTF_8 = "not UTF-8"
Rejected = tuple[int, str, bytes]


def registered(run: Run, tmp_path: Path, content: bytes, name: str = "s") -> tuple[list[Rejected], list[str]]:
    """The rejected entries of a subscription file, and the groups that it registered."""
    (tmp_path / name).write_bytes(content)
    ended = run(register, "--subscriptions", tmp_path / name, "--warehouse", tmp_path / "w")
    assert ended.code == 0, ended.error
    groups = [row["consumer_group"] for row in rows_of(tmp_path / "w", "subscriptions", "consumer_group")]
    return quarantined(tmp_path / "w"), sorted(groups)


def quarantined(warehouse: Path) -> list[Rejected]:
    rows = rows_of(warehouse, "quarantine", "offset", "reason", "bytes")
    return sorted((row["offset"], row["reason"], row["bytes"]) for row in rows)


def test_a_line_of_events(run: Run, tmp_path: Path) -> None:
    torn = LATIN_1[:-10]
    elsewhere = GOOD_LINE.replace(b"{", b'{"note": "f\xfcr", ')
    rejected, groups = registered(run, tmp_path, b"\n".join([GOOD_LINE, LATIN_1, torn, b"\xa0", elsewhere]))
    assert groups == ["cg_good"]
    assert [(line, content) for line, _, content in rejected] == [(2, LATIN_1), (3, torn), (4, b"\xa0"), (5, elsewhere)]
    assert {reason for line, reason, _ in rejected if line in (2, 5)} == {NOT_UTF_8}


def test_a_file_that_begins_with_a_byte_order_mark_and_has_other_line_ends(run: Run, tmp_path: Path) -> None:
    rejected, groups = registered(run, tmp_path, b"\xef\xbb\xbf" + GOOD_LINE + b"\r\n \t\r\n" + LATIN_1 + b"\r\n\r\n")
    assert (rejected, groups) == ([(3, NOT_UTF_8, LATIN_1 + b"\r")], ["cg_good"])


def test_an_entry_of_a_list(run: Run, tmp_path: Path) -> None:
    """A comment may be in any encoding: it is no part of a subscription."""
    bad = "group: cg_bad\n  topic: T\n  tag: für".encode("latin-1")
    good = "- {group: cg_good, topic: T, tag: für}\n".encode()
    comment = "# Prüfung\n".encode("latin-1")
    rejected, groups = registered(run, tmp_path, comment + b"- " + bad + b"\n" + good + comment)
    assert (rejected, groups) == ([(2, NOT_UTF_8, bad)], ["cg_good"])


def test_a_list_in_another_encoding(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_bytes("- {group: cg, topic: T, tag: für}\n".encode("utf-16"))
    ended = run(register, "--subscriptions", tmp_path / "s.yaml", "--warehouse", tmp_path / "w")
    assert (ended.code, ended.error.count("\n")) == (2, 1)
    assert "(line 1: not UTF-8 (convert it, as iconv does), and not YAML: " in ended.error


def filters(*groups: str, expression: str = "a = 1") -> str:
    """A consumerFilter.json as the broker writes it, with tabs and line breaks."""
    fields = {"expressionType": "SQL92", "bornTime": 1, "deadTime": 0, "clientVersion": 1, "expression": expression}
    entries = {group: {"consumerGroup": group, "topic": "T"} | fields for group in groups}
    return json.dumps({"filterDataByTopic": {"T": {"groupFilterData": entries, "topic": "T"}}}, indent="\t")


def test_an_entry_of_the_brokers_own_list(run: Run, tmp_path: Path) -> None:
    content = filters("cg_good", "cg_bad").encode()
    end = content.index(b"a = 1", content.index(b'"cg_bad": {'))
    content = content[:end] + b"a = '\xfc'" + content[end + 5 :]
    rejected, groups = registered(run, tmp_path, content, "consumerFilter.json")
    start = content.index(b'"cg_bad": {') + len(b'"cg_bad": ')
    ((line, reason, kept),) = rejected
    assert groups == ["cg_good"]
    assert (line, reason) == (
        content[:start].count(b"\n") + 1,
        "the filter of cg_bad lacks a field or has a bad one: not UTF-8",
    )
    assert kept == content[start : content.index(b"}", start) + 1]


def night_on_list(run: Run, folder: Path, content: bytes) -> str:
    """A night on a store with this consumerFilter.json. Returns its summary."""
    shutil.copytree(capture("small") / "store" / "commitlog", folder / "store" / "commitlog")
    (folder / "store" / "config").mkdir()
    (folder / "store" / "config" / "consumerFilter.json").write_bytes(content)
    ended = run(nightly, "--store", folder / "store", "--warehouse", folder / "w")
    assert ended.code == 0, ended.error
    return ended.out


def test_two_bad_filters_of_one_group_are_at_their_own_lines(run: Run, tmp_path: Path) -> None:
    first, second = (f'{{"consumerGroup": "cg", "expression": {number}}}' for number in (5, "[6]"))
    text = (
        f'{{ "filterDataByTopic": {{"A":{{ "groupFilterData":\n{{"cg"\n : {first}}}, "topic": "{{"}},\n'
        f'"B": {{"x": [{{}}], "groupFilterData": {{"cg": {second} }}}},\n"C": {{"groupFilterData": {{}}}}}}}}'
    )
    night_on_list(run, tmp_path, text.encode())
    assert [(line, kept) for line, _, kept in quarantined(tmp_path / "w")] == [
        (3, first.encode()), (4, second.encode()),
    ]  # fmt: skip


@pytest.mark.parametrize("end", [b"", b"\xff"])
def test_a_torn_list_in_the_store_is_kept_whole(run: Run, tmp_path: Path, end: bytes) -> None:
    torn = filters(*(f"cg_{number}" for number in range(9_000))).encode()[:-20] + end
    assert len(torn) > 1 << 20
    out = night_on_list(run, tmp_path, torn)
    assert "quarantined: consumerFilter.json, line 1: not a consumerFilter.json of RocketMQ: not JSON" in out
    ((line, _, kept),) = quarantined(tmp_path / "w")
    assert (line, kept == torn) == (1, True)


def test_a_torn_list_that_comes_with_a_copy_that_has_nothing_else_new(run: Run, tmp_path: Path) -> None:
    shutil.copytree(capture("small") / "store" / "commitlog", tmp_path / "store" / "commitlog")
    given = ("--store", tmp_path / "store", "--warehouse", tmp_path / "w")
    assert run(nightly, *given).code == 0
    (tmp_path / "store" / "config").mkdir()
    (tmp_path / "store" / "config" / "consumerFilter.json").write_bytes(b"{")
    assert "quarantined: consumerFilter.json" in run(nightly, *given).out
    assert [kept for *_, kept in quarantined(tmp_path / "w")] == [b"{"]
    assert "There was nothing new" in run(nightly, *given).out


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_list_of_filters_leaves_groups_with_tags_alone(run: Run, tmp_path: Path, mark: bytes) -> None:
    """consumerFilter.json has no tags, also if an editor put a byte order mark before it."""
    for content in (GOOD_LINE, mark + filters("cg_sql").encode()):
        (tmp_path / "s").write_bytes(content)
        store = capture("small") / "store"
        run(nightly, "--store", store, "--subscriptions", tmp_path / "s", "--warehouse", tmp_path / "w")
    events = rows_of(tmp_path / "w", "subscription_events", "event")
    assert [json.loads(row["event"])["op"] for row in events] == ["register", "register"]
