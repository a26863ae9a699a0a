"""Why windows begin where they begin, as the table pull_windows stores it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from filtering.delivery.message_filter import MessageFilter
from filtering.delivery.pull_window import PullWindow, Reason, StartReason
from schemas.pull_windows import late_window_rows, stored_windows


def rows(reason: Reason | StartReason) -> pa.Table:
    return pa.Table.from_batches([late_window_rows([PullWindow(MessageFilter("cg", "T"), 0, reason=reason)], "run")])


@pytest.mark.parametrize("reason", [*Reason, *StartReason])
def test_a_stored_text_gives_the_same_reason(reason: Reason | StartReason) -> None:
    ((_, window),) = stored_windows(rows(reason))
    assert window.reason is reason


def test_a_first_start_says_so_in_the_table() -> None:
    assert rows(StartReason.FIRST)["reason"].to_pylist() == ["first start: consume_from first"]


def test_a_text_of_an_older_mqsieve() -> None:
    table = rows(Reason.RETURNED)
    texts = ["when the subscription changed is not known exactly"]
    older = table.set_column(table.schema.get_field_index("reason"), "reason", [texts])
    ((_, window),) = stored_windows(older)
    assert window.reason is Reason.OF_OLDER_VERSION
