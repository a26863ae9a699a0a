"""Where the data of a preallocated segment ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.rocketmq_store.segments import segments
from schemas.storage import Storage

SIZE = 3 << 20


@pytest.mark.parametrize("written", [{}, {0: b"a"}, {0: b"a", 2 << 20: b"bb"}, {(1 << 20) + 7: b"c"}, {SIZE - 1: b"d"}])
@pytest.mark.parametrize("zeros", ["hole", "written"])
def test_data_ends_behind_the_last_byte_that_is_not_zero(tmp_path: Path, written: dict[int, bytes], zeros: str) -> None:
    with (tmp_path / f"{SIZE:020d}").open("wb") as file:
        if zeros == "written":
            file.write(bytes(SIZE))
        file.truncate(SIZE)
        for position, data in written.items():
            file.seek(position)
            file.write(data)
    (segment,) = segments(Storage.at(str(tmp_path)))
    assert segment.data_end == SIZE + max((position + len(data) for position, data in written.items()), default=0)
