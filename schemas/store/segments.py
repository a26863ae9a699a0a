"""The segment files of a commit log: each is named by the physical offset of its first byte (MappedFileQueue)."""

import mmap
from dataclasses import dataclass
from pathlib import Path


class CommitLogError(ValueError):
    """A path that holds no commit log; the message says what to give instead."""


@dataclass(frozen=True, order=True)
class Segment:
    """A segment file: the physical offset of its first byte, its path, and its size in bytes when it was listed."""

    offset: int
    path: str
    size: int

    def map(self) -> mmap.mmap:
        """The bytes of the file, read as they are touched; there must be some."""
        with open(self.path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def segments(path: str) -> list[Segment]:
    """The segment files of a store folder, or of its ``commitlog`` folder, by offset. Raises CommitLogError."""
    given = Path(path)
    if not given.is_dir():
        what = "is a file" if given.exists() else "does not exist"
        raise CommitLogError(f"{given} {what}; give a broker's store folder, or the commitlog folder in it")
    folder = given / "commitlog" if (given / "commitlog").is_dir() else given
    named = [file for file in folder.iterdir() if file.name.isascii() and file.name.isdecimal() and file.is_file()]
    if not named:
        raise CommitLogError(
            f"{folder} holds no commit log segment (a file named by its offset, as 00000000000000000000); "
            "give a broker's store folder, or the commitlog folder in it"
        )
    return sorted(Segment(int(file.name), str(file), file.stat().st_size) for file in named)
